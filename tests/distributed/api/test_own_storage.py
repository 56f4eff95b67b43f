"""Storages: a folder by its seven calls, a user's own as a store, those that options make."""

import errno
import os
import threading

import numpy as np
import pytest
from tests.distributed.api.own_parts import OwnStorage
from tests.distributed.threads import all_well, on_ranks, told
from tests.ground.crowds import in_threads

import model_checkpoint as mc
from model_checkpoint.distributed import (
    CallTimeout,
    CheckpointStorage,
    DistributedCheckpoint,
    FolderStorage,
    LoadOptions,
    LocalCoordinator,
    SaveOptions,
    StorageFactory,
    StorageOptions,
)
from model_checkpoint.distributed.storing import keyed_attempt
from model_checkpoint.distributed.storing.keyed_store import KeyedStore
from model_checkpoint.errors import OptionInvalid, RootNotShared, StorageFailure
from model_checkpoint.options import Graces
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing.blobs import seal_blob
from model_checkpoint.testing.link_suite import LinkSuite
from model_checkpoint.testing.sidecar_suite import SidecarSuite
from model_checkpoint.testing.store_suite import StoreSuite


class OverAFolder:
    def make_store(self, folder):
        return KeyedStore(FolderStorage(folder / "root"))


class TestOwnStorageAsAStore(OverAFolder, StoreSuite):
    """All that a store must do, on seven calls over a folder."""


class TestLinksOfOwnStorage(OverAFolder, LinkSuite):
    """Two checkpoints have a file in common."""


class TestSidecarsOfOwnStorage(OverAFolder, SidecarSuite):
    """Small values beside the checkpoints."""


@pytest.fixture(params=["folder", "own"])
def storage(request, tmp_path):
    return FolderStorage(tmp_path / "root") if request.param == "folder" else OwnStorage()


def test_bytes_come_back_under_nested_paths(storage):
    assert isinstance(storage, CheckpointStorage)
    storage.write("a/b/c.bin", b"first")
    storage.write("a/b/c.bin", b"second")
    storage.write("a/d.bin", b"")

    assert storage.read("a/b/c.bin") == b"second"
    assert storage.read("a/b/c.bin", 1, 3) == b"ec"
    assert storage.read("a/b/c.bin", 4, 99) == b"nd"
    assert sorted(storage.list("a/")) == ["a/b/c.bin", "a/d.bin"]
    assert list(storage.list("b")) == []


def test_what_is_not_there_is_told(storage):
    assert not storage.exists("x")
    storage.delete("x")
    for ask in (storage.read, storage.get_metadata):
        with pytest.raises(FileNotFoundError, match="x"):
            ask("x")
    storage.write("x", b"123")
    assert storage.exists("x")
    assert storage.get_metadata("x").size == 3
    assert storage.get_metadata("x").last_modified.tzinfo is not None
    storage.delete("x")
    assert not storage.exists("x")


def test_of_many_who_create_a_path_one_does(storage):
    barrier, won = threading.Barrier(8), []

    def create(number):
        barrier.wait()
        if storage.create("x/y", bytes([number])):
            won.append(number)

    in_threads(create, range(8))

    assert len(won) == 1
    assert storage.read("x/y") == bytes(won)


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../b", "a//b", "a/./b", "a\\b", "a\0b", None])
def test_a_path_never_leaves_the_folder(tmp_path, path):
    storage = FolderStorage(tmp_path / "root")

    for call in (lambda: storage.write(path, b"x"), lambda: storage.read(path), lambda: storage.delete(path)):
        with pytest.raises(OptionInvalid, match="is no path within the storage"):
            call()
    assert not (tmp_path / "root").exists()


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    storage = FolderStorage(tmp_path / "root")
    with pytest.raises(ValueError, match="expected bytes, got str"):
        storage.write("x", "text")

    def fsync(handle):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="broken"):
        storage.write("x", b"bytes")
    assert list(storage.list("")) == []
    assert not any((tmp_path / "root").rglob("*"))


def test_options_make_storages(tmp_path):
    local = StorageFactory.create(StorageOptions(connection_settings={"basePath": str(tmp_path / "here")}))
    assert isinstance(local, FolderStorage)
    assert isinstance(local.store, LocalStore)
    assert local.url == str(tmp_path / "here")
    memory = StorageOptions(provider="memory", connection_settings={"basePath": "storage-options"})
    checkpoint = DistributedCheckpoint(LocalCoordinator(), StorageFactory.create(memory))

    checkpoint.save({"w": np.ones(2)}, {"m": 1}, SaveOptions(checkpoint_prefix="x"))

    assert mc.load("memory://storage-options")["model"]["w"].tolist() == [1, 1]
    bucket = StorageFactory.create(StorageOptions(provider="s3", connection_settings={"basePath": "bucket/runs"}))
    assert bucket.url == "s3://bucket/runs"


def state(coordinator):
    return {"w": np.arange(2000.0), "own": np.full(50, coordinator.rank)}


def test_ranks_that_have_storages_of_their_own_are_found_out():
    def save(coordinator):
        DistributedCheckpoint(coordinator, OwnStorage()).save_model_only(
            state(coordinator), SaveOptions(checkpoint_prefix="x", timeout=20)
        )

    assert isinstance(told(on_ranks(2, save)), RootNotShared)


@pytest.mark.slow
@pytest.mark.parametrize("last_words", [True, False])
def test_a_leader_that_falls_silent_has_decided_or_it_has_not(last_words):
    """Rank 0 is lost before or after it has created the verdict; the others find out which, and say the same."""
    storage, gate = OwnStorage(), threading.Event()

    class Leader(OwnStorage):
        """The storage as rank 0 sees it: it hangs at the verdict."""

        def __init__(self):
            self.kept, self.guard = storage.kept, storage.guard

        def create(self, path, data):
            if not path.startswith(".verdicts/"):
                return super().create(path, data)
            made = super().create(path, data) if last_words else None
            gate.wait(30)
            return super().create(path, data) if made is None else made

    def save(coordinator):
        place = Leader() if coordinator.rank == 0 else storage
        checkpoint = DistributedCheckpoint(coordinator, KeyedStore(place).__class__(place))
        try:
            return checkpoint.save_model_only(
                state(coordinator), SaveOptions(checkpoint_prefix="x", timeout=1 if coordinator.rank else 60)
            )
        finally:
            if coordinator.rank == 1:
                gate.set()

    outcomes = on_ranks(2, save, patience=60)

    names = [info.prefix for info in DistributedCheckpoint(LocalCoordinator(), storage).list_checkpoints()]
    if last_words:
        assert outcomes == ["x", "x"]
        assert names == ["x"]
    else:
        assert all(isinstance(one, (CallTimeout, StorageFailure)) for one in outcomes), outcomes
        assert names == []


def test_what_dead_saves_and_deletions_left_is_swept():
    storage = OwnStorage()
    store = KeyedStore(storage)
    checkpoint = DistributedCheckpoint(LocalCoordinator(), store)
    for prefix in ("a", "b"):
        checkpoint.save({"w": np.ones(9)}, {"m": 1}, SaveOptions(checkpoint_prefix=prefix))
    checkpoint.delete_checkpoint("a")
    dead = KeyedStore(storage).stage("c", "dead")
    seal_blob(dead, "x-dead", b"abc")
    keyed_attempt._living.clear()  # as in the next process

    kept = store.sweep(Graces())
    swept = store.sweep(Graces(local=0, foreign=0, trash=0))

    assert not kept.attempts
    assert not kept.trashed
    assert list(swept.attempts) == ["dead"]
    assert len(swept.trashed) == 1
    assert len(storage.list("data/")) == 1
    live = {"w": np.zeros(9)}
    checkpoint.load(live, {"m": 0}, LoadOptions(checkpoint_prefix="b"))
    assert live["w"].all()


GONE = Graces(local=0, foreign=0, trash=0)


def saved_by_two(storage, prefix="x"):
    def save(coordinator):
        return DistributedCheckpoint(coordinator, storage).save_model_only(
            state(coordinator), SaveOptions(checkpoint_prefix=prefix)
        )

    all_well(on_ranks(2, save))


def test_verdicts_are_swept_a_grace_after_their_attempts():
    storage = OwnStorage()
    store = KeyedStore(storage)
    saved_by_two(storage)
    attempt = store.stage_shared("given-up", "attempt-1")
    assert not store.settle("given-up", "attempt-1")
    assert len(storage.list(".verdicts/")) == 2

    store.sweep(Graces())
    assert len(storage.list(".verdicts/")) == 2
    assert store.sweep(GONE, dry_run=True).nbytes > 0
    assert len(storage.list(".verdicts/")) == 2
    store.sweep(GONE)

    assert storage.list(".verdicts/") == []
    assert mc.load(store, per_rank=0)["model"]["w"].shape == (2000,)
    with pytest.raises(StorageFailure, match="given-up"):  # rank 0 was stopped until now
        attempt.publish(b"the manifest")
    assert store.names() == ["x"]


def test_a_dead_save_is_carried_out_if_that_was_decided_and_given_up_if_not(monkeypatch):
    """Rank 0 may be stopped for longer than the grace, right before or after it has decided."""
    storage = OwnStorage()
    store = KeyedStore(storage)
    undecided, decided = store.stage_shared("a", "attempt-a"), store.stage_shared("b", "attempt-b")
    for one in (undecided, decided):
        seal_blob(one, "file", b"abc")
    with monkeypatch.context() as stopped:
        stopped.setattr(keyed_attempt, "place", lambda *args: (_ for _ in ()).throw(InterruptedError("stopped")))
        with pytest.raises(InterruptedError, match="stopped"):
            decided.publish(b"the manifest of b")
    keyed_attempt._living.clear()  # as in the next process

    swept = store.sweep(GONE)

    assert sorted(swept.attempts) == ["attempt-a", "attempt-b"]
    assert (store.names(), storage.list(".attempts/")) == (["b"], [])
    assert len(storage.list("data/")) == 1
    with pytest.raises(StorageFailure, match="checkpoints/a"):
        undecided.publish(b"the manifest of a")
    assert store.read_manifest("b") == b"the manifest of b"


def test_a_dead_overwrite_that_was_decided_does_not_replace_what_was_saved_since(monkeypatch):
    storage = OwnStorage()
    store = KeyedStore(storage)

    def published(attempt, content):
        begun = store.stage_shared("x", attempt)
        seal_blob(begun, "file", content)
        begun.publish(content, replace=True)

    published("attempt-1", b"first")
    with monkeypatch.context() as stopped:
        stopped.setattr(keyed_attempt, "place", lambda *args: (_ for _ in ()).throw(InterruptedError("stopped")))
        with pytest.raises(InterruptedError, match="stopped"):
            published("attempt-2", b"stale")
    published("attempt-3", b"newest")
    keyed_attempt._living.clear()  # as in the next process

    assert list(store.sweep(GONE).attempts) == ["attempt-2"]

    assert store.read_manifest("x") == b"newest"
    assert store.settle("x", "attempt-2")  # as if it had been there before the newest replaced it
    assert store.read_manifest("x") == b"newest"


def test_a_rank_that_asks_after_the_verdict_was_swept_changes_nothing():
    """It was stopped in its last step, and the checkpoint has been deleted, or its files linked, since."""
    storage = OwnStorage()
    store = KeyedStore(storage)
    saved_by_two(storage)
    (verdict,) = storage.list(".verdicts/")
    attempt, before = verdict.removeprefix(".verdicts/"), set(storage.list("data/"))
    mc.delete(store, name="x")

    assert store.settle("x", attempt)  # it was published
    assert store.names() == []
    store.sweep(Graces(local=0, foreign=0))
    assert not store.settle("x", attempt)

    assert (store.names(), set(storage.list("data/"))) == ([], before)
    mc.undelete(store, name="x")
    assert mc.load(store, per_rank=0)["model"]["w"].shape == (2000,)


def test_a_checkpoint_saved_again_shares_what_did_not_change():
    storage = OwnStorage()
    store = KeyedStore(storage)
    state = {"w": np.arange(100_000.0), "step": 1}
    mc.save(store, state, step=1, incremental=True)
    mc.save(store, state | {"step": 2}, step=2, incremental=True)

    assert mc.list_checkpoints(store)[0].shared_bytes > 800_000
    mc.delete(store, step=1)
    store.sweep(Graces(local=0, foreign=0, trash=0))
    assert np.array_equal(mc.load(store)["w"], state["w"])


def test_ranks_that_save_again_put_there_what_rank_0_would_not_find():
    store = KeyedStore(OwnStorage())

    def save(step):
        def work(ranks):
            state = {"own": np.full(300_000, ranks.rank), "step": step}
            mc.save(store, state, step=step, coordinator=ranks, incremental=True)

        all_well(on_ranks(2, work))

    for step in (1, 2):
        save(step)

    assert all(health.ok for health in mc.verify(store))
    assert mc.load(store, per_rank=1)["own"].tolist() == [1] * 300_000
    assert mc.list_checkpoints(store)[0].shared_bytes > 2_000_000  # of rank 0


def test_a_storage_whose_ranks_all_see_it_keeps_files_of_whole_tensors():
    storage = OwnStorage()

    def save(coordinator):
        from model_checkpoint.distributed import CheckpointFormat

        options = SaveOptions(checkpoint_prefix="x", format=CheckpointFormat.SINGLE_FILE)
        DistributedCheckpoint(coordinator, storage).save_model_only({"w": np.arange(2000.0)}, options)

    all_well(on_ranks(2, save))

    assert np.array_equal(mc.load(KeyedStore(storage))["model"]["w"], np.arange(2000.0))


@pytest.mark.parametrize("begin", ["stage", "stage_shared", "mend"])
def test_the_id_of_an_attempt_is_used_once_however_it_begins(tmp_path, begin):
    store = KeyedStore(OwnStorage())
    getattr(store, begin)("c", "attempt-1")

    with pytest.raises(StorageFailure, match="the attempt id is in use"):
        store.stage("c", "attempt-1")
