"""Ranks whose disk stops to answer in a chosen call, for ever, while they themselves live on."""

import threading
import time

import numpy as np
from tests.distributed.faults.fault_scenes import connected, side_by_side

from model_checkpoint.distributed import (
    DistributedCheckpoint,
    LoadOptions,
    LocalCoordinator,
    SaveOptions,
    TorchCoordinator,
)
from model_checkpoint.errors import CheckpointException
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls

SOON, LATE = 3.0, 8.0  # seconds: one of them is the patience, the other one the timeout
# Where the disk hangs: at the first write, at the rename that publishes, behind it, and then on all ranks at once.
HANGS = [("save", "write", 0), ("save", "write", 1), ("save", "publish", 0), ("save", "published", 0)]
HANGS += [("save", "published for all", 0), ("load", "read", 0), ("load", "read", 1)]


def trials():
    """What is done, where the disk of which rank hangs, the patience, and what the call may take."""
    return [(*hang, *times) for hang in HANGS for times in ((SOON, LATE), (LATE, SOON))]


class HangingDisk(Syscalls):
    """Answers no call any more from a chosen one on."""

    def __init__(self, where, *, hangs):
        super().__init__()
        self.where, self.hangs, self.hung = where, hangs, False

    def never(self):
        self.hung = True
        threading.Event().wait()


def _hanging(name):
    real = getattr(Syscalls, name)

    def call(self, *args, **kwargs):
        if self.hung:
            self.never()
        publishes = name == "rename" and ".staging" in args[0] and "checkpoints" in args[1]
        behind = name == "fsync_dir" and str(args[0]).endswith("/checkpoints")
        at = {"write": name == "pwrite", "publish": publishes, "published": behind, "read": name == "preadv"}
        if at.get(self.where, behind) and self.hangs:
            self.never()
        return real(self, *args, **kwargs)

    return call


for _name in [name for name, value in vars(Syscalls).items() if callable(value) and not name.startswith("_")]:
    setattr(HangingDisk, _name, _hanging(_name))


def named(trial):
    """A name for the root of a trial."""
    return "-".join(map(str, trial)).replace(" ", "-")


def first_saved(roots):
    """A checkpoint in the root of each trial, as it is before anything hangs."""
    for trial in trials():
        checkpoint = DistributedCheckpoint(LocalCoordinator(), f"{roots}/{named(trial)}")
        checkpoint.save({"w": np.ones(9)}, {"m": 1}, SaveOptions(checkpoint_prefix="first"))


def beside_a_hanging_disk(rank, world, folder, *, roots):
    """What every trial came to on this rank, and how long it took."""
    coordinators = connected(rank, [patience for *_, patience, _ in trials()])
    outcomes = {}
    warm = DistributedCheckpoint(TorchCoordinator(patience=60.0), f"{roots}/warm")
    warm.save({"w": np.zeros(9)}, {"m": 1})

    def attempt(trial, ranks):
        way, where, victim, _, timeout = trial
        disk = HangingDisk(where, hangs=rank == victim or where.endswith("for all"))
        store = LocalStore(f"{roots}/{named(trial)}", calls=disk)
        outcomes[named(trial)] = outcome_of(DistributedCheckpoint(ranks, store), way, timeout)

    side_by_side(attempt, zip(trials(), coordinators, strict=True))
    return outcomes


def outcome_of(checkpoint, way, timeout):
    """What a call came to, and how long it took."""
    began, state = time.monotonic(), {"w": np.zeros(9)}
    try:
        if way == "save":
            checkpoint.save(state, {"m": 1}, SaveOptions(checkpoint_prefix="x", timeout=timeout))
        else:
            options = LoadOptions(checkpoint_prefix="first", timeout=timeout, skip_validation=True)
            checkpoint.load(state, {"m": 0}, options)
        made = {"error": None}
    except CheckpointException as error:
        made = {"error": type(error).__name__, "ranks": list(getattr(error, "ranks", ())), "message": str(error)}
    return made | {"seconds": time.monotonic() - began}
