"""A deletion that was settled stays so, whoever comes later, on a full disk too, and as long as it may be needed."""

import errno
import os
import threading

import pytest
from obstore.store import MemoryStore
from tests.distributed.api.test_left_behind import Hang, HangingDisk, outcome_of
from tests.distributed.faults.deletion_places import PLACES, SHORT, bucket, save
from tests.distributed.threads import all_well, on_ranks, told
from tests.ground.disks.full_disks import FULL_DISKS, full_disk_of

import model_checkpoint as mc
from model_checkpoint.distributed import DistributedCheckpoint, LocalCoordinator, RankLost
from model_checkpoint.distributed.storing.keyed_store import KeyedStore
from model_checkpoint.errors import CheckpointException, DurabilityUnknown, StorageFailure
from model_checkpoint.options import Graces
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls, WrappedCalls
from model_checkpoint.storage.memory import InMemoryStore

NOW = Graces(local=0, foreign=0, trash=0)

full_disk = full_disk_of(FULL_DISKS)


@pytest.mark.parametrize("place", PLACES)
def test_what_was_settled_stays_so_and_a_new_deletion_is_another_one(tmp_path, place):
    _, store = place(tmp_path, Hang(0))
    save(store)
    given_up, done = store.plan_discard("x"), store.plan_discard("x")

    assert not store.settle_discard(given_up)
    assert not store.settle_discard(given_up)
    with pytest.raises(StorageFailure, match="x: other ranks have given its deletion up, so it is kept"):
        store.discard_planned(given_up)
    assert [info.prefix for info in mc.list_checkpoints(store)] == ["x"]
    assert store.trash() == []
    assert all(health.ok for health in mc.verify(store))

    store.discard_planned(done)
    assert store.settle_discard(done)
    assert store.names() == []
    assert mc.undelete(store, name="x").prefix == "x"


@pytest.mark.parametrize("place", PLACES)
def test_the_word_that_a_deletion_was_given_up_stays_as_long_as_there_is_such_a_checkpoint(tmp_path, place):
    _, store = place(tmp_path, Hang(0))
    if place is bucket:
        store = ObjectStore(store.url, store=store._bucket.client, term=0.0)
    save(store)
    token = store.plan_discard("x")
    assert not store.settle_discard(token)

    swept = store.sweep(NOW)
    assert (swept.trashed, swept.waiting) == ([], [])
    with pytest.raises(StorageFailure, match="given its deletion up"):
        store.discard_planned(token)

    mc.delete(store, name="x")
    store.sweep(NOW)
    assert words_left(store, token) == 0


def words_left(store, token):
    if isinstance(store, LocalStore):
        return sum(token in path for _, _, paths in os.walk(store.url) for path in paths)
    if isinstance(store, InMemoryStore):
        return len(store._bucket.kept)
    if isinstance(store, KeyedStore):
        return len(store._calls.list(".verdicts/"))
    return sum(item.key.endswith(".verdict") for item in store._bucket.list(".staging"))


class FullDisk(WrappedCalls):
    """A disk without an inode, or without room for one more name; what is there can still be moved."""

    def __init__(self, *, names):
        super().__init__(Syscalls())
        self.names = names

    def perform(self, name, action, *args, **kwargs):
        creates = name == "open" and args[1] & os.O_CREAT
        if creates or (name == "mkdir") or (name == "link" and not self.names):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return action(*args, **kwargs)


class StoppedAt(HangingDisk):
    """Hangs before the rename that deletes."""

    def __init__(self, hang):
        super().__init__(hang, ["rename"], when=lambda args: "/checkpoints/" in str(args[0]))


def stopped_on_a_full_disk(root, *, names):
    hang = Hang(1)

    def work(ranks):
        calls = FullDisk(names=names) if ranks.rank else StoppedAt(hang)
        try:
            return outcome_of(
                lambda: DistributedCheckpoint(ranks, LocalStore(root, calls=calls)).delete_checkpoint("x")
            )
        finally:
            hang.go_on.set()

    return on_ranks(2, work, patience=SHORT)


def test_without_an_inode_for_that_word_a_deletion_can_be_given_up_all_the_same(tmp_path):
    save(tmp_path)

    outcomes = stopped_on_a_full_disk(tmp_path, names=True)

    assert [(type(one), one.ranks) for one in outcomes] == [(RankLost, (0,))] * 2
    assert [info.prefix for info in mc.list_checkpoints(tmp_path)] == ["x"]
    assert all(health.ok for health in mc.verify(tmp_path))


def test_without_room_for_that_word_all_ranks_say_that_they_cannot_know(tmp_path):
    save(tmp_path)

    error = told(stopped_on_a_full_disk(tmp_path, names=False))

    assert type(error) is DurabilityUnknown
    assert "it is being deleted, or may be" in str(error)
    assert "mckpt ls" in str(error)


def test_a_deletion_by_many_ranks_needs_no_room(tmp_path):
    save(tmp_path)
    store = LocalStore(tmp_path, calls=FullDisk(names=False))

    all_well(on_ranks(2, lambda ranks: DistributedCheckpoint(ranks, store).delete_checkpoint("x")))

    assert mc.list_checkpoints(tmp_path) == []
    assert mc.undelete(tmp_path, name="x").prefix == "x"


def test_where_the_trash_has_no_room_for_a_name_a_deletion_is_settled_in_its_other_place(tmp_path):
    class FullTrash(WrappedCalls):
        def perform(self, name, action, *args, **kwargs):
            if name == "rename" and "/.trash/" in str(args[1]):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return action(*args, **kwargs)

    for settled_first in (True, False):
        root = tmp_path / str(settled_first)
        save(root)
        store, full = LocalStore(root), LocalStore(root, calls=FullTrash(Syscalls()))
        token = store.plan_discard("x")
        if settled_first:
            assert not store.settle_discard(token)
            with pytest.raises(StorageFailure, match="given its deletion up"):
                full.discard_planned(token)
            assert store.has("x")
        else:
            full.discard_planned(token)
            assert store.settle_discard(token)
            assert mc.undelete(root, name="x").prefix == "x"


def test_a_deletion_of_one_process_in_a_bucket_makes_no_verdict(tmp_path):
    asked = []

    def told_of(request, call):
        asked.append(request.key)
        return call()

    plain = ObjectStore("s3://bucket/alone", store=MemoryStore())
    save(plain)
    store = plain.with_requests(lambda inner: told_of)

    DistributedCheckpoint(LocalCoordinator(), store).delete_checkpoint("x")

    assert not [key for key in asked if key.endswith(".verdict")]
    assert not plain.has("x")


def settled_and_deleted_at_once(store):
    """What four who settle a deletion and one who carries it out found, at the same time."""
    save(store)
    token, found, start = store.plan_discard("x"), [], threading.Barrier(5)

    def settle():
        start.wait()
        found.append(store.settle_discard(token))

    def remove():
        start.wait()
        try:
            store.discard_planned(token)
        except CheckpointException:
            found.append(False)
        else:
            found.append(True)

    threads = [threading.Thread(target=one) for one in (settle, settle, remove, settle, settle)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 5, found
    return set(found)


@pytest.mark.parametrize("place", PLACES)
def test_many_who_settle_and_delete_at_once_find_one_verdict(tmp_path, place):
    for _ in range(12):
        _, store = place(tmp_path, Hang(0))
        assert settled_and_deleted_at_once(store) == {not store.has("x")}


@pytest.mark.slow
@pytest.mark.s3
def test_a_server_knows_one_verdict_too(moto):
    for number in range(8):
        store = ObjectStore(f"s3://bucket/settled/{number}", store=moto.client("bucket"))
        assert settled_and_deleted_at_once(store) == {not store.has("x")}


@pytest.mark.slow
def test_on_a_full_disk_a_deletion_of_many_ranks_is_carried_out_or_given_up(full_disk):
    mount_point, fill = full_disk
    root = mount_point / "runs"
    for prefix in ("x", "y"):
        save(root, prefix)
    fill(mount_point)

    all_well(on_ranks(2, lambda ranks: DistributedCheckpoint(ranks, root).delete_checkpoint("y")))
    store = LocalStore(root)
    token = store.plan_discard("x")
    assert not store.settle_discard(token)

    with pytest.raises(StorageFailure, match="given its deletion up"):
        store.discard_planned(token)
    assert [info.prefix for info in mc.list_checkpoints(root)] == ["x"]
    assert mc.undelete(root, name="y").prefix == "y"
