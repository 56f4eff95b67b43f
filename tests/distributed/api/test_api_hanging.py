"""A call comes back in time whatever hangs, and what it has left behind makes nothing visible later."""

import signal
import threading

import numpy as np
import pytest
from tests.distributed.threads import on_ranks

import model_checkpoint as mc
from model_checkpoint.distributed import (
    CallTimeout,
    DistributedCheckpoint,
    ExceptionType,
    LoadOptions,
    LocalCoordinator,
    RankLost,
    SaveOptions,
    ValidationResult,
)
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls

SHORT = 1.0  # seconds; what hangs would do so until it is told otherwise
STATES = {"w": np.ones((64, 64), np.float32)}, {"m": np.ones(9)}


class HangingDisk(Syscalls):
    """Hangs in calls of one name until it is told to go on."""

    def __init__(self, name):
        super().__init__()
        self.name, self.reached, self.go_on = name, threading.Event(), threading.Event()


def _hanging(name):
    real = getattr(Syscalls, name)

    def call(self, *args, **kwargs):
        if name == self.name:
            self.reached.set()
            assert self.go_on.wait(60)
        return real(self, *args, **kwargs)

    return call


for _name in ("pwrite", "fsync", "rename", "preadv"):
    setattr(HangingDisk, _name, _hanging(_name))


@pytest.fixture
def left_behind():
    """Waits, at the end, for the threads of calls that were left behind."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.ident is not None:  # else somebody is just about to start it
            thread.join(60)


@pytest.mark.parametrize("call", ["pwrite", "fsync", "rename"])
def test_a_save_whose_disk_hangs_comes_back_in_time_and_nothing_becomes_visible(tmp_path, left_behind, call):
    disk = HangingDisk(call)
    checkpoint = DistributedCheckpoint(LocalCoordinator(), LocalStore(tmp_path, calls=disk))

    with pytest.raises(CallTimeout, match=r"the save took longer than 1 s and hangs") as caught:
        checkpoint.save(*STATES, SaveOptions(checkpoint_prefix="x", timeout=SHORT))

    assert disk.reached.is_set()
    assert (caught.value.type, caught.value.checkpoint_path) == (ExceptionType.TIMEOUT, f"{tmp_path}/checkpoints/x")
    disk.go_on.set()
    checkpoint.save(*STATES, SaveOptions(checkpoint_prefix="y"))  # begins when the other is over
    assert [info.prefix for info in mc.list_checkpoints(tmp_path)] == ["y"]
    assert list((tmp_path / ".staging").iterdir()) == []


@pytest.mark.parametrize("hangs", [0, 1])
def test_all_ranks_come_back_when_the_disk_of_one_hangs_and_nothing_becomes_visible(tmp_path, left_behind, hangs):
    disk = HangingDisk("pwrite")

    def save(ranks):
        store = LocalStore(tmp_path, calls=disk) if ranks.rank == hangs else tmp_path
        options = SaveOptions(checkpoint_prefix="x", timeout=SHORT)
        DistributedCheckpoint(ranks, store).save(*STATES, options)

    outcomes = on_ranks(2, save)

    assert all(isinstance(one, (CallTimeout, RankLost)) for one in outcomes)
    assert all(one.type is ExceptionType.TIMEOUT for one in outcomes)
    disk.go_on.set()
    for thread in threading.enumerate():
        if thread.name == "mckpt-the save":
            thread.join(60)
    assert mc.list_checkpoints(tmp_path) == []


def test_a_save_in_the_background_whose_disk_hangs_is_over_in_time(tmp_path, left_behind):
    disk = HangingDisk("pwrite")
    checkpoint = DistributedCheckpoint(LocalCoordinator(), LocalStore(tmp_path, calls=disk))

    call = checkpoint.save_async(*STATES, SaveOptions(checkpoint_prefix="x", timeout=SHORT))

    assert isinstance(call.exception(60), CallTimeout)
    disk.go_on.set()
    checkpoint.save(*STATES, SaveOptions(checkpoint_prefix="y"))
    assert [info.prefix for info in mc.list_checkpoints(tmp_path)] == ["y"]


def test_a_call_behind_one_that_hangs_comes_back_in_time(tmp_path, left_behind):
    disk = HangingDisk("pwrite")
    checkpoint = DistributedCheckpoint(LocalCoordinator(), LocalStore(tmp_path, calls=disk))
    first = checkpoint.save_async(*STATES, SaveOptions(checkpoint_prefix="x"))
    assert disk.reached.wait(60)

    with pytest.raises(CallTimeout, match=r"the save took longer than 1 s"):
        checkpoint.save(*STATES, SaveOptions(checkpoint_prefix="y", timeout=SHORT))
    with pytest.raises(CallTimeout, match=r"the save took longer than 1 s"):
        checkpoint.save_async(*STATES, SaveOptions(checkpoint_prefix="z", timeout=SHORT))
    disk.go_on.set()

    assert first.result(60) == "x"
    checkpoint.save(*STATES, SaveOptions(checkpoint_prefix="last"))
    assert sorted(info.prefix for info in mc.list_checkpoints(tmp_path)) == ["last", "x"]


def test_a_load_whose_disk_hangs_comes_back_in_time(tmp_path, left_behind):
    disk = HangingDisk("preadv")
    DistributedCheckpoint(LocalCoordinator(), tmp_path).save(*STATES, SaveOptions(checkpoint_prefix="x"))
    checkpoint = DistributedCheckpoint(LocalCoordinator(), LocalStore(tmp_path, calls=disk))

    with pytest.raises(CallTimeout, match=r"the load took longer than 1 s and hangs"):
        checkpoint.load(*STATES, LoadOptions(checkpoint_prefix="x", timeout=SHORT))
    disk.go_on.set()


def test_a_validator_that_hangs_lets_no_rank_wait_longer_than_the_call_may_take(tmp_path, left_behind):
    go_on = threading.Event()

    class Endless:
        def validate_checkpoint(self, prefix):
            assert go_on.wait(60)
            return ValidationResult("endless")

    def load(ranks):
        checkpoint = DistributedCheckpoint(ranks, tmp_path, validator=Endless() if ranks.rank == 0 else None)
        checkpoint.save(*STATES, SaveOptions(checkpoint_prefix="x"))
        checkpoint.load(*STATES, LoadOptions(checkpoint_prefix="x", timeout=SHORT))

    outcomes = on_ranks(2, load)
    go_on.set()

    assert all(isinstance(one, (CallTimeout, RankLost)) for one in outcomes)
    assert all(one.type is ExceptionType.TIMEOUT for one in outcomes)


def test_a_deletion_that_hangs_comes_back_in_time(tmp_path, left_behind):
    disk = HangingDisk("rename")
    DistributedCheckpoint(LocalCoordinator(), tmp_path).save(*STATES, SaveOptions(checkpoint_prefix="x"))
    checkpoint = DistributedCheckpoint(LocalCoordinator(), LocalStore(tmp_path, calls=disk), default_timeout=SHORT)

    with pytest.raises(CallTimeout, match="the deletion took longer"):
        checkpoint.delete_checkpoint("x")
    disk.go_on.set()


def test_an_interrupt_ends_a_call_that_hangs(tmp_path, left_behind):
    """As Ctrl-C does: whoever waits is let go at once, and the call comes to nothing."""
    disk = HangingDisk("pwrite")
    checkpoint = DistributedCheckpoint(LocalCoordinator(), LocalStore(tmp_path, calls=disk))

    def press():
        disk.reached.wait(60)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        checkpoint.save(*STATES, SaveOptions(checkpoint_prefix="x"))
    disk.go_on.set()

    checkpoint.save(*STATES, SaveOptions(checkpoint_prefix="y"))
    assert [info.prefix for info in mc.list_checkpoints(tmp_path)] == ["y"]


def test_an_interrupt_while_a_call_begins_ends_it_too(tmp_path, left_behind, monkeypatch):
    """A busy machine may take its time to start a thread, and Ctrl-C may come meanwhile."""
    disk, start = HangingDisk("pwrite"), threading.Thread.start

    def start_and_be_interrupted(thread):
        start(thread)
        if thread.name.startswith("mckpt-the save"):
            disk.reached.wait(60)
            raise KeyboardInterrupt

    checkpoint = DistributedCheckpoint(LocalCoordinator(), LocalStore(tmp_path, calls=disk))
    with monkeypatch.context() as busy:
        busy.setattr(threading.Thread, "start", start_and_be_interrupted)
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            checkpoint.save(*STATES, SaveOptions(checkpoint_prefix="x"))
    disk.go_on.set()

    checkpoint.save(*STATES, SaveOptions(checkpoint_prefix="y"))
    assert [info.prefix for info in mc.list_checkpoints(tmp_path)] == ["y"]
