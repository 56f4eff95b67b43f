"""A local store killed or failed at every single call of every operation, and again inside the recovery."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from tests.ground.scenes import Album
from tests.storage.local.faults.crash_ground import BRING_BACK, DISCARD, NEW, OPERATIONS, SAVE_NEW, SAVE_OVER, Ground

from model_checkpoint.errors import DiskFull, DurabilityUnknown, StorageFailure
from model_checkpoint.storage import LocalStore
from model_checkpoint.testing import Ended, Fault, FaultyCalls, Kind, each_call, flushes_retried, run_in_child
from model_checkpoint.testing.blobs import blob_manifest, load_blobs, save_blobs, stage_blobs


@pytest.mark.fault
@pytest.mark.parametrize("kind", [Kind.KILL_BEFORE, Kind.KILL_AFTER])
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_killed_at_every_call_nothing_acknowledged_is_lost_and_nothing_is_left(quick_folder, operation, kind):
    ground = Ground(quick_folder, operation)

    points = 0
    for _, outcome in each_call(ground.work, Fault(kind=kind, at=0), prepare=ground.prepare):
        assert outcome.ended is Ended.KILLED
        ground.verify(outcome)
        points += 1

    assert points >= {"recover": 35, "save_new": 30, "save_over": 50}.get(operation.name, 12)


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_killed_again_at_every_call_of_the_recovery_it_still_recovers(quick_folder, operation):
    ground, album = Ground(quick_folder, operation), Album()

    points = 0
    for _, first in each_call(ground.work, Fault(kind=Kind.KILL_BEFORE, at=0), prepare=ground.prepare):
        if not album.takes(ground.root):
            continue  # a kill before the call that follows one which only reads leaves the same
        ground.keep()
        kill = Fault(kind=Kind.KILL_BEFORE, at=0)
        for _, second in each_call(ground.recover, kill, prepare=ground.restore):
            assert second.ended is Ended.KILLED
            ground.verify(first)
            points += 1

    assert points >= {"save_new": 100, "save_over": 250, "recover": 300}.get(operation.name, 4)


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE], ids=errno.errorcode.get)
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_failed_at_every_call_it_raises_typed_or_succeeds_and_nothing_is_lost(quick_folder, operation, code, lasting):
    ground = Ground(quick_folder, operation)
    fault = Fault(kind=Kind.FAIL, at=0, code=code, lasting=lasting)

    raised = 0
    for at, outcome in each_call(ground.work, fault, prepare=ground.prepare):
        assert outcome.ended is not Ended.KILLED
        assert flushes_retried(outcome.trace) == []
        if outcome.ended is Ended.RAISED:
            raised += 1
            assert isinstance(outcome.error, StorageFailure), at
            full = code in (errno.ENOSPC, errno.EDQUOT) and not isinstance(outcome.error, DurabilityUnknown)
            assert isinstance(outcome.error, DiskFull) == full
        ground.verify(outcome)

    assert raised >= 8


@pytest.mark.fault
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_failed_once_with_eio_at_every_call_nothing_is_lost(quick_folder, operation):
    test_failed_at_every_call_it_raises_typed_or_succeeds_and_nothing_is_lost(quick_folder, operation, errno.EIO, False)


@pytest.mark.fault
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("direct", [False, True], ids=["cached", "direct"])
@pytest.mark.parametrize("operation", [SAVE_NEW, SAVE_OVER], ids=str)
def test_short_writes_are_continued_or_reported(quick_folder, operation, direct, lasting):
    ground = Ground(quick_folder, operation)

    def work(calls):
        operation.work(LocalStore(ground.root, calls=calls, direct=direct))

    acknowledged = 0
    for _, outcome in each_call(work, Fault(kind=Kind.SHORT_WRITE, at=0, lasting=lasting), prepare=ground.prepare):
        ground.verify(outcome)
        acknowledged += outcome.acknowledged
        assert outcome.acknowledged or direct  # around the cache half a block cannot be continued

    assert acknowledged >= 20


@pytest.mark.fault
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST], ids=errno.errorcode.get)
@pytest.mark.parametrize("operation", [SAVE_NEW, SAVE_OVER], ids=str)
def test_when_a_reply_is_lost_the_attempt_id_in_the_manifest_decides(quick_folder, operation, code):
    ground = Ground(quick_folder, operation)

    landed = 0
    for at, outcome in each_call(ground.work, Fault(kind=Kind.LOSE_REPLY, at=0, code=code), prepare=ground.prepare):
        ground.verify(outcome)
        lost = outcome.trace[at - 1]
        if lost.name == "rename" and "manifest.tmp" not in lost.path and "x-a1" not in lost.path:
            assert outcome.acknowledged, (lost, outcome.error)
            landed += 1

    assert landed >= 1


@pytest.mark.fault
@pytest.mark.parametrize(
    ("code", "lasting"), [(errno.EIO, False), (errno.EIO, True), (errno.ESTALE, False), (errno.ENOSPC, True)]
)
@pytest.mark.parametrize("operation", [DISCARD, BRING_BACK], ids=str)
def test_when_the_reply_to_a_move_is_lost_the_folder_in_place_decides(quick_folder, operation, code, lasting):
    ground = Ground(quick_folder, operation)
    fault = Fault(kind=Kind.LOSE_REPLY, at=0, code=code, lasting=lasting)

    lost = []
    for at, outcome in each_call(ground.work, fault, prepare=ground.prepare):
        ground.verify(outcome)
        if outcome.trace[at - 1].name == "rename":
            lost.append(outcome.acknowledged or isinstance(outcome.error, DurabilityUnknown))
            assert outcome.acknowledged or lasting

    assert lost == [True]


@pytest.mark.fault
def test_each_data_file_is_flushed_exactly_once(quick_folder):
    calls = FaultyCalls()

    save_blobs(LocalStore(quick_folder / "root", calls=calls), "step-1", NEW, attempt="a2")

    flushed = [Path(call.path).name for call in calls.trace if call.name == "fsync"]
    assert sorted(flushed) == sorted([*NEW, "manifest.tmp"])


def steps(calls, root):
    """What a store did for durability, in order, with short names."""
    kinds = ("pwrite", "ftruncate", "fsync", "fsync_dir", "rename", "link", "unlink")
    told = [(call.name, call.path.removeprefix(f"{root}/")) for call in calls.trace if call.name in kinds]
    return [
        f"{name} {path.partition('~')[0]}" for name, path in told if "lock" not in path and not path.startswith("/")
    ]


@pytest.mark.fault
def test_a_new_checkpoint_is_committed_in_this_order(quick_folder):
    calls = FaultyCalls()
    store = LocalStore(quick_folder / "root", calls=calls)
    save_blobs(store, "step-0", {}, attempt="a0")
    calls.trace.clear()

    save_blobs(store, "step-1", {"x-a1": b"abc"}, attempt="a1")

    assert steps(calls, quick_folder / "root") == [
        "pwrite .staging/a1/x-a1",
        "ftruncate .staging/a1/x-a1",
        "fsync .staging/a1/x-a1",
        "pwrite .staging/a1/manifest.tmp",
        "fsync .staging/a1/manifest.tmp",
        "rename .staging/a1/manifest.tmp",
        "fsync_dir .staging/a1",
        "rename .staging/a1",
        "fsync_dir checkpoints",
        "fsync_dir .staging",
    ]


@pytest.mark.fault
def test_a_replacement_is_committed_in_this_order_and_the_old_goes_last(quick_folder):
    calls = FaultyCalls()
    store = LocalStore(quick_folder / "root", calls=calls)
    save_blobs(store, "step-1", {"x-a1": b"abc"}, attempt="a1")
    calls.trace.clear()

    save_blobs(store, "step-1", {"x-a2": b"def"}, attempt="a2", replace=True, obsolete=["x-a1"])

    assert steps(calls, quick_folder / "root") == [
        "pwrite .staging/a2/x-a2",
        "ftruncate .staging/a2/x-a2",
        "fsync .staging/a2/x-a2",
        "pwrite .staging/a2/manifest.tmp",
        "fsync .staging/a2/manifest.tmp",
        "rename .staging/a2/manifest.tmp",
        "fsync_dir .staging",  # the lock, which tells recovery where to look for strays
        "link checkpoints/step-1/manifest.json",
        "link .staging/a2/x-a2",
        "link .staging/a2/manifest.json",
        "fsync checkpoints/step-1",
        "rename manifest.a2.tmp",
        "fsync checkpoints/step-1",
        "rename x-a1",
        "fsync_dir .trash/step-1",
        "rename .staging/a2/manifest.replaced",  # now the old one can be brought back
        "unlink .staging/a2/manifest.json",
        "unlink .staging/a2/x-a2",
    ]


@pytest.mark.fault
def test_a_file_whose_flush_failed_is_dead_and_so_is_its_attempt(quick_folder):
    calls = FaultyCalls()
    store = LocalStore(quick_folder / "root", calls=calls)
    stage = store.stage("step-1", "a1")
    writer = stage.create("x", 0)
    calls.fault = Fault(kind=Kind.FAIL, at=len(calls.trace) + 2, code=errno.EIO)  # ftruncate, then the flush

    with pytest.raises(StorageFailure, match=r"x: could not be flushed to the medium \(Input/output error\)"):
        writer.seal()
    calls.fault = None

    with pytest.raises(StorageFailure, match=r"sealed, or failed, before"):
        writer.seal()
    with pytest.raises(StorageFailure, match=r"1 files are not sealed \(x\)"):
        stage.publish(b"m")
    assert flushes_retried(calls.trace) == []


@pytest.mark.fault
@pytest.mark.parametrize("operation", [SAVE_NEW, SAVE_OVER], ids=str)
def test_a_failed_flush_after_the_switch_is_neither_success_nor_failure(quick_folder, operation):
    ground = Ground(quick_folder, operation)
    ground.prepare()
    trace = run_in_child(ground.work).trace
    last = max(
        call.index
        for call in trace
        if call.name in ("fsync", "fsync_dir") and ".trash" not in call.path and not call.path.endswith("root")
    )
    ground.prepare()

    outcome = run_in_child(ground.work, Fault(kind=Kind.FAIL, at=last, code=errno.EIO))

    assert type(outcome.error) is DurabilityUnknown
    assert "may not survive a power loss" in str(outcome.error)
    assert load_blobs(LocalStore(ground.root), "step-1") == NEW
    ground.verify(outcome)


def test_the_harness_sees_a_store_that_forgets_a_step(quick_folder):
    """A store that publishes before its files are sealed is caught, so the tests above can fail."""

    def careless(store):
        stage = stage_blobs(store, "step-1", {}, attempt="a2")
        for file, data in NEW.items():
            (Path(store.url) / ".staging" / "a2" / file).write_bytes(data[: len(data) // 2])
        stage.publish(blob_manifest("step-1", "a2", NEW))

    ground = Ground(quick_folder, replace(SAVE_NEW, work=careless))
    ground.prepare()

    outcome = run_in_child(ground.work)

    with pytest.raises(AssertionError, match=r"step-1/x-a2: the bytes are not those that were saved"):
        ground.verify(outcome)
