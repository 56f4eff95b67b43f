"""How long calls may take, in which order they are made, and how they are cancelled."""

import os
import stat
import threading

import numpy as np
import pytest
from tests.distributed.threads import all_well, on_ranks, told

import model_checkpoint as mc
from model_checkpoint.distributed import (
    CallCancelled,
    CallTimeout,
    DistributedCheckpoint,
    ExceptionType,
    LoadOptions,
    LocalCoordinator,
    SaveOptions,
)
from model_checkpoint.errors import (
    StorageFailure,
    WrongReference,
)
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls

X = SaveOptions(checkpoint_prefix="x")
FROM_X = LoadOptions(checkpoint_prefix="x")


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_a_rank_that_does_not_come_is_named_within_the_timeout(tmp_path, absent):
    def save(coordinator):
        if coordinator.rank == absent:
            return None
        checkpoint = DistributedCheckpoint(coordinator, tmp_path)
        return checkpoint.save({"w": 1}, {"m": 1}, SaveOptions(checkpoint_prefix="x", timeout=0.5))

    outcomes = on_ranks(3, save, patience=300)

    assert outcomes.pop(absent) is None
    error = told(outcomes)
    assert isinstance(error, CallTimeout)
    assert isinstance(error, TimeoutError)
    assert (error.type, error.ranks) == (ExceptionType.TIMEOUT, (absent,))
    assert f"rank {absent} of 3 had not come so far" in str(error)
    assert error.checkpoint_path.endswith("/checkpoints/x")


class GatedDisk(Syscalls):
    """Waits in the middle of a write until the test lets it go on."""

    def __init__(self):
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()

    def pwrite(self, fd, data, offset):
        self.reached.set()
        assert self.go_on.wait(60)
        return super().pwrite(fd, data, offset)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_cancelled_save_leaves_nothing_and_every_rank_says_so(tmp_path, rank):
    disk, cancel = GatedDisk(), threading.Event()

    def save(coordinator):
        store = LocalStore(tmp_path, calls=disk) if coordinator.rank == rank else LocalStore(tmp_path)
        event = cancel if coordinator.rank == rank else None
        DistributedCheckpoint(coordinator, store).save({"w": np.ones((64, 64))}, {"m": 1}, X, cancel=event)

    def interrupt():
        disk.reached.wait(60)
        cancel.set()
        disk.go_on.set()

    threading.Thread(target=interrupt).start()
    error = told(on_ranks(2, save))

    assert isinstance(error, CallCancelled)
    assert error.type is ExceptionType.SAVE_FAILED
    assert mc.list_checkpoints(tmp_path) == []


def test_what_was_cancelled_before_it_began_does_nothing(tmp_path):
    checkpoint, cancel = DistributedCheckpoint(LocalCoordinator(), tmp_path), threading.Event()
    checkpoint.save({"w": 1}, {"m": 1}, X)
    cancel.set()

    for call in (
        lambda: checkpoint.save({"w": 1}, {"m": 1}, cancel=cancel),
        lambda: checkpoint.save_model_only({"w": 1}, cancel=cancel),
        lambda: checkpoint.load({"w": 0}, {"m": 0}, FROM_X, cancel=cancel),
        lambda: checkpoint.list_checkpoints(cancel=cancel),
        lambda: checkpoint.delete_checkpoint("x", cancel=cancel),
    ):
        with pytest.raises(CallCancelled, match="was cancelled"):
            call()
    assert [info.prefix for info in mc.list_checkpoints(tmp_path)] == ["x"]


def test_calls_in_the_background_keep_their_order(tmp_path):
    def many(coordinator):
        checkpoint = DistributedCheckpoint(coordinator, tmp_path)
        for number in range(4):
            checkpoint.save({"w": number}, {"m": 1}, SaveOptions(checkpoint_prefix=f"x{number}"))
        live = [{"w": -1} for _ in range(4)]
        loads = [
            checkpoint.load_async(one, {"m": 0}, LoadOptions(checkpoint_prefix=f"x{number}"))
            for number, one in enumerate(live)
        ]
        gone = checkpoint.delete_checkpoint_async("x0")
        results = [one.result(60) for one in loads]
        gone.result(60)
        assert all(one.done() and not one.cancel() for one in loads)
        return [one["w"] for one in live], [one.metadata.prefix for one in results]

    expected = [0, 1, 2, 3], ["x0", "x1", "x2", "x3"]
    assert all_well(on_ranks(2, many)) == [expected] * 2
    assert sorted(info.prefix for info in mc.list_checkpoints(tmp_path)) == ["x1", "x2", "x3"]


def test_the_handle_of_a_failed_call_has_its_error(tmp_path):
    call = DistributedCheckpoint(LocalCoordinator(), tmp_path).load_async({"w": 1}, {"m": 1}, FROM_X)

    assert isinstance(call.exception(60), WrongReference)
    with pytest.raises(WrongReference, match="x: no such checkpoint"):
        call.result()
    assert "done" in repr(call)


def test_a_handle_may_be_asked_for_a_while(tmp_path):
    disk = GatedDisk()
    checkpoint = DistributedCheckpoint(LocalCoordinator(), LocalStore(tmp_path, calls=disk))
    model = {"w": np.ones(1000)}
    call = checkpoint.save_async(model, {"m": 1}, X)
    model["w"][:] = 7  # the save has its copy

    with pytest.raises(CallTimeout, match="not over after 0 s; it goes on"):
        call.result(0)
    disk.go_on.set()

    assert call.result(60) == "x"
    assert np.all(mc.load(tmp_path)["model"]["w"] == 1)


def test_a_save_in_the_background_can_be_cancelled(tmp_path):
    disk = GatedDisk()
    checkpoint = DistributedCheckpoint(LocalCoordinator(), LocalStore(tmp_path, calls=disk))
    call = checkpoint.save_async({"w": np.ones(1000)}, {"m": 1}, X)
    assert disk.reached.wait(60)
    assert call.cancel()
    disk.go_on.set()

    assert isinstance(call.exception(60), CallCancelled)
    assert mc.list_checkpoints(tmp_path) == []


def test_a_disk_that_fails_is_tried_again_and_then_told(tmp_path):
    tries = []

    class Disk(Syscalls):
        def pwrite(self, fd, data, offset):
            tries.append(offset)
            if len(tries) < 3:
                raise OSError(5, "for a moment")
            return super().pwrite(fd, data, offset)

    from model_checkpoint.distributed import FaultToleranceHandler, RetryPolicy

    waits, store = [], LocalStore(tmp_path, calls=Disk())
    handler = FaultToleranceHandler(store, RetryPolicy(max_retries=2), wait=waits.append)
    DistributedCheckpoint(LocalCoordinator(), store, handler).save({"w": np.ones(9)}, {"m": 1}, X)

    assert len(waits) == 2
    assert 0.75 <= waits[0] <= 1 < waits[1] * 1.4 <= 2.8
    assert np.all(mc.load(tmp_path)["model"]["w"] == 1)
    tries.clear()
    handler = FaultToleranceHandler(store, RetryPolicy(max_retries=1), wait=waits.append)
    with pytest.raises(StorageFailure, match="could not") as caught:
        DistributedCheckpoint(LocalCoordinator(), store, handler).save({"w": np.ones(9)}, {"m": 1})
    assert caught.value.type is ExceptionType.STORAGE_ERROR
    assert isinstance(caught.value.inner_exception, OSError)


class SlowSwitch(Syscalls):
    """A disk whose lock on a folder comes when the time is over: right before the manifest is switched."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def flock(self, fd, operation):
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            threading.Event().wait(self.limit)
        super().flock(fd, operation)


def test_a_replacement_that_comes_too_late_is_told_as_that_and_not_as_a_failing_disk(tmp_path):
    first = DistributedCheckpoint(LocalCoordinator(), tmp_path)
    first.save({"w": 1}, {"m": 1}, SaveOptions(checkpoint_prefix="x"))
    slow = DistributedCheckpoint(LocalCoordinator(), LocalStore(tmp_path, calls=SlowSwitch(0.6)))

    with pytest.raises(CallTimeout, match=r"the save took longer than 0\.5 s"):
        slow.save({"w": 2}, {"m": 2}, SaveOptions(checkpoint_prefix="x", overwrite=True, timeout=0.5))

    live = {"w": 0}
    first.load(live, {"m": 0}, LoadOptions(checkpoint_prefix="x"))
    assert live == {"w": 1}
