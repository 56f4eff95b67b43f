"""Ranks that die or stop at each storage call, or each word, of a deletion."""

import json
import time
from pathlib import Path

import numpy as np
from tests.distributed.faults.fault_scenes import Gate, TrappedCoordinator, connected, side_by_side, strike

from model_checkpoint.distributed import DistributedCheckpoint, LocalCoordinator, SaveOptions, TorchCoordinator
from model_checkpoint.errors import CheckpointException
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls, WrappedCalls

PATIENCE = 8.0
WORDS = ("mine", "mine said", "vote", "vote said")  # of a rank that does not lead


class CountedCalls(WrappedCalls):
    """The system, which counts its calls, and tells of each before it is made."""

    def __init__(self, tell=lambda count: None):
        super().__init__(Syscalls())
        self.made, self._tell = [], tell

    def perform(self, name, action, *args, **kwargs):
        self.made.append((name, *map(str, args)))
        self._tell(len(self.made))
        return action(*args, **kwargs)


class WordTrap(TrappedCoordinator):
    """A coordinator that tells of each word, before and after it is said."""

    def put(self, key, value):
        self._call, word, _ = key.rsplit("/", 2)
        self._trap(word)
        self._inner.put(key, value)
        self._trap(f"{word} said")


def save_first(root):
    """A checkpoint to delete, and one that stays."""
    for prefix in ("x", "y"):
        options = SaveOptions(checkpoint_prefix=prefix, include_rng_state=False)
        DistributedCheckpoint(LocalCoordinator(), root).save({"w": np.ones(9)}, {"m": 1}, options)


def outcome_of(checkpoint):
    """What a deletion came to."""
    try:
        checkpoint.delete_checkpoint("x")
    except CheckpointException as error:
        return {"error": type(error).__name__, "message": str(error), "ranks": list(getattr(error, "ranks", ()))}
    return {"error": None}


def struck_while_deleting(rank, world, folder, *, roots, fault, victim, moments):
    """One deletion for each moment; the victim gets its signal when each of its own has come to that."""
    inner = connected(rank, [PATIENCE] * len(moments))
    save = DistributedCheckpoint(TorchCoordinator(patience=60.0), f"{roots}/warm").save
    save({"w": np.ones(9)}, {"m": 1}, SaveOptions(checkpoint_prefix="x"))
    outcomes = {}
    gate = Gate(len(moments), lambda: strike(roots, fault))

    def attempt(moment, coordinator):
        def trap(now):
            if rank == victim and now == moment:
                gate.arrive(ranks.beat)

        ranks = WordTrap(coordinator, trap)
        store = LocalStore(f"{roots}/{moment}", calls=CountedCalls(trap))
        outcomes[str(moment)] = outcome_of(DistributedCheckpoint(ranks, store))

    side_by_side(attempt, zip(moments, inner, strict=True))
    (Path(roots) / f"told-{rank}.tmp").write_text(json.dumps(outcomes))
    (Path(roots) / f"told-{rank}.tmp").rename(Path(roots) / f"told-{rank}")
    if fault == "stop" and rank != victim:
        wait_for(Path(roots) / f"told-{victim}")  # who has gone cannot tell the sleeper what they were told
    return outcomes


def wait_for(path, seconds=100.0):
    """Wait until there is such a file."""
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.05)
