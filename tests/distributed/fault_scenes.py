"""Ranks that die, stop or meet a failing disk in a chosen moment of a save."""

import errno
import os
import signal
import time
from pathlib import Path

import numpy as np
import torch.distributed as dist
from tests.distributed.scenes import join

import model_checkpoint as mc
from model_checkpoint.distributed import TorchCoordinator
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls

PATIENCE = 6.0
FAULTS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
CODES = {"full": errno.ENOSPC, "broken": errno.EIO}


class Trap:
    """Springs once, at the chosen moment of the chosen rank."""

    def __init__(self, fault, phase):
        self.fault, self.phase, self.armed = fault, phase, False

    def at(self, phase):
        if not self.armed or phase != self.phase:
            return
        self.armed = False
        if self.fault == "interrupt":
            raise KeyboardInterrupt
        if self.fault in CODES:
            raise OSError(CODES[self.fault], os.strerror(CODES[self.fault]))
        os.kill(os.getpid(), FAULTS[self.fault])


class TrappedCalls(Syscalls):
    """The system, with a trap."""

    def __init__(self, trap):
        super().__init__()
        self.trap = trap

    def pwrite(self, fd, data, offset):
        self.trap.at("write")
        return super().pwrite(fd, data, offset)

    def fsync(self, fd):
        self.trap.at("flush")
        super().fsync(fd)

    def rename(self, source, target, **folders):
        publishing = ".staging" in source and "checkpoints" in target
        if publishing:
            self.trap.at("publish")
        super().rename(source, target, **folders)
        if publishing:
            self.trap.at("published")


class TrappedCoordinator(TorchCoordinator):
    """The coordinator of the group, with a trap."""

    trap: Trap

    def put(self, key, value):
        if "/hello/" in key or "/open/" in key:
            self.trap.at("begin")
        super().put(key, value)
        if "/vote/" in key:
            self.trap.at("voted")


def state_of(rank, world, step):
    rows = np.arange(64 * 1024, dtype=np.float32).reshape(64, 1024) + step
    return {"all": rows, "own": np.full(1000, rank + step), "step": step}


def save_under_fault(rank, world, folder, *, root, fault, phase, victim):
    """Save a first checkpoint, then a second under the fault; tell what the second came to, and how soon."""
    join(PATIENCE)
    trap = Trap(fault, phase)
    coordinator = TrappedCoordinator(patience=PATIENCE)
    coordinator.trap = trap
    store = LocalStore(root, calls=TrappedCalls(trap))
    first = TrappedCoordinator(patience=60.0)  # on a busy machine the ranks do not begin at the same time
    first.trap = trap
    mc.save(store, state_of(rank, world, 1), step=1, coordinator=first)
    dist.barrier()
    trap.armed = rank == victim
    (Path(folder) / f"armed-{rank}").touch()
    began = time.monotonic()
    try:
        info = mc.save(store, state_of(rank, world, 2), step=2, coordinator=coordinator)
        outcome = {"saved": info.step}
    except mc.CheckpointException as error:
        outcome = {"error": type(error).__name__, "message": str(error), "ranks": list(getattr(error, "ranks", ()))}
    return outcome | {"seconds": time.monotonic() - began}
