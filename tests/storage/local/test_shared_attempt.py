"""One attempt of many ranks: it is published or it is settled, never both, whoever comes first."""

import threading

import pytest

from model_checkpoint.errors import CheckpointException, RootNotShared, StorageFailure
from model_checkpoint.storage.contract.shared import SharedStore
from model_checkpoint.storage.local import shared_attempt
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.storage.memory import InMemoryStore
from model_checkpoint.testing.blobs import blob_manifest, seal_blob


def staged(store, name, attempt):
    """An attempt to which two ranks have written, ready to be published."""
    leader = store.stage_shared(name, attempt)
    other = store.join(name, attempt)
    seal_blob(leader, f"r0-{attempt}", b"of rank 0")
    seal_blob(other, f"r1-{attempt}", b"of rank 1")
    files = {f"r0-{attempt}": b"of rank 0", f"r1-{attempt}": b"of rank 1"}
    return leader, blob_manifest(name, attempt, files)


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    return LocalStore(tmp_path) if request.param == "local" else InMemoryStore(f"memory://{request.node.name[-40:-10]}")


def test_files_of_all_ranks_are_published_together(store):
    assert isinstance(store, SharedStore)
    leader, manifest = staged(store, "step-1", "a1")

    leader.publish(manifest)

    assert set(store.files("step-1")) == {"manifest.json", "r0-a1", "r1-a1"}
    assert store.settle("step-1", "a1")


def test_an_attempt_that_was_settled_is_never_published(store):
    leader, manifest = staged(store, "step-1", "a1")

    assert not store.settle("step-1", "a1")

    with pytest.raises(StorageFailure, match=r"could not|attempt is over"):
        leader.publish(manifest)
    leader.abort()
    assert store.names() == []
    assert not store.settle("step-1", "a1")


def test_what_a_settled_attempt_had_staged_is_gone_at_once(tmp_path):
    store = LocalStore(tmp_path)
    leader, _ = staged(store, "step-1", "a1")

    store.settle("step-1", "a1")
    leader.abort()

    assert list((tmp_path / ".staging").iterdir()) == []


def test_a_rank_that_was_left_behind_cannot_write_any_more(tmp_path):
    store = LocalStore(tmp_path)
    store.stage_shared("step-1", "a1")
    late = store.join("step-1", "a1")

    store.settle("step-1", "a1")

    with pytest.raises(StorageFailure, match="could not create the file"):
        late.create("r1-a1", 3)


def test_a_rank_that_does_not_see_the_stage_says_that_the_root_is_not_shared(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_attempt, "_SEEN_WITHIN", 0.0)
    LocalStore(tmp_path / "of rank 0").stage_shared("step-1", "a1")
    other = LocalStore(tmp_path / "of rank 1")
    other.stage("step-0", "a0").abort()

    with pytest.raises(RootNotShared, match="rank 0 has made this folder, but it is not there"):
        other.join("step-1", "a1")


class SettlingCalls(Syscalls):
    """Settles the attempt from elsewhere right before the chosen call of its publication."""

    def __init__(self, root, name):
        super().__init__()
        self.root, self.name, self.left = root, name, -1

    def _count(self):
        if self.left == 0:
            self.said = LocalStore(self.root).settle(self.name, "a2")
        self.left -= 1

    def link(self, *args, **kwargs):
        self._count()
        super().link(*args, **kwargs)

    def rename(self, *args, **kwargs):
        self._count()
        super().rename(*args, **kwargs)

    def fsync(self, fd):
        self._count()
        super().fsync(fd)

    def fsync_dir(self, path):
        self._count()
        super().fsync_dir(path)


@pytest.mark.parametrize("replacing", [False, True])
def test_at_whatever_moment_a_publication_is_settled_both_sides_know_the_same(tmp_path, replacing):
    outcomes = set()
    for moment in range(20):
        root = tmp_path / str(moment)
        calls = SettlingCalls(root, "step-1")
        store = LocalStore(root, calls=calls)
        if replacing:
            first, manifest = staged(store, "step-1", "a1")
            first.publish(manifest)
        leader, manifest = staged(store, "step-1", "a2")
        calls.said, calls.left = None, moment

        try:
            leader.publish(manifest, replace=replacing, obsolete=["r0-a1", "r1-a1"] if replacing else ())
            published = True
        except CheckpointException:
            published = False
            leader.abort()

        here = store.has("step-1") and "r0-a2" in store.files("step-1") and b'"a2"' in store.read_manifest("step-1")
        assert here == published
        assert calls.said is None or calls.said == published
        if replacing and not published:
            assert set(store.files("step-1")) == {"manifest.json", "r0-a1", "r1-a1"}
        outcomes.add((calls.said, published))
    assert {(False, False), (True, True), (None, True)} <= outcomes


def test_of_two_who_race_exactly_one_wins(tmp_path):
    store = LocalStore(tmp_path)
    for number in range(40):
        leader, manifest = staged(store, f"step-{number}", f"a{number}")
        said, ready = [], threading.Barrier(2)

        def settle(number=number, said=said, ready=ready):
            ready.wait()
            said.append(LocalStore(tmp_path).settle(f"step-{number}", f"a{number}"))

        rival = threading.Thread(target=settle)
        rival.start()
        ready.wait()
        try:
            leader.publish(manifest)
            published = True
        except StorageFailure:
            published = False
            leader.abort()
        rival.join()

        assert said == [published] == [store.has(f"step-{number}")]


def test_files_that_are_dropped_are_no_part_of_the_checkpoint(tmp_path):
    store = LocalStore(tmp_path)
    leader, _ = staged(store, "step-1", "a1")

    leader.drop(["r1-a1"])
    leader.publish(blob_manifest("step-1", "a1", {"r0-a1": b"of rank 0"}))

    assert set(store.files("step-1")) == {"manifest.json", "r0-a1"}


def test_a_rank_reads_what_it_has_sealed_before_anything_is_published(store):
    leader = store.stage_shared("step-1", "a1")
    other = store.join("step-1", "a1")
    found = []
    for attempt, data in ((leader, b"of rank 0"), (other, b"of rank 1!")):
        seal_blob(attempt, "r-a1" if attempt is leader else "s-a1", data)
        reader = attempt.open("r-a1" if attempt is leader else "s-a1")
        buffer = bytearray(reader.size)
        reader.read_into(0, memoryview(buffer))
        reader.close()
        found.append(bytes(buffer))

    assert found == [b"of rank 0", b"of rank 1!"]


def test_of_an_attempt_that_is_over_nothing_is_read(store):
    leader = store.stage_shared("step-1", "a1")
    other = store.join("step-1", "a1")
    seal_blob(other, "r1-a1", b"of rank 1")
    other.abort()
    leader.abort()

    with pytest.raises(CheckpointException, match=r"over|gone|no such"):
        other.open("r1-a1")
