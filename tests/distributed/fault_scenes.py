"""Ranks that die, stop, are interrupted or meet a failing disk in a chosen moment of a save or a load."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import torch.distributed as dist
from tests.distributed.scenes import join

import model_checkpoint as mc
from model_checkpoint.distributed import TorchCoordinator
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls

PATIENCE = 8.0
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
# What may be going on in a rank, by what it does: words it is about to say or has just said, calls to its disk.
FOLLOWER = {
    "save": ["hello", "detail", "write", "flush", "vote said"],
    "overwrite": ["write", "vote said"],
    "load": ["ready0", "done0"],
}
LEADER = {
    "save": ["open", "pooled", "write", "flush", "publish", "published"],
    "overwrite": ["write", "publish", "published"],
    "load": ["open0", "go0", "end0"],
}


def trials(victim):
    """Every way and phase in which something may happen to a rank."""
    return [(way, phase) for way, phases in (FOLLOWER if victim else LEADER).items() for phase in phases]


class Trap:
    """Springs once, at the chosen moment of the chosen rank."""

    def __init__(self, phase, spring):
        self.phase, self._spring = phase, spring

    def at(self, phase):
        if phase == self.phase:
            self.phase = None
            self._spring()


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
        staged = ".staging" in source and "checkpoints" in target
        publishing = staged or (target == "manifest.json" and folders.get("into") is not None)
        if publishing:
            self.trap.at("publish")
        super().rename(source, target, **folders)
        if publishing:
            self.trap.at("published")


class TrappedCoordinator:
    """A coordinator, with a trap; ``beat`` gives a sign of life."""

    def __init__(self, inner, trap):
        self._inner, self._trap = inner, trap
        self.scope = getattr(inner, "scope", inner)
        self._call, self._beats = "", 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def beat(self):
        self._beats += 1
        self._inner.put(f"{self._call}/beat/{self._inner.rank}", b"%d" % self._beats)

    def put(self, key, value):
        self._call, topic, _ = key.rsplit("/", 2)
        self._trap.at(topic)
        self._inner.put(key, value)
        self._trap.at(f"{topic} said")


class Gate:
    """Where all trials of the victim wait for each other, alive, until it is struck."""

    def __init__(self, count, strike):
        self._left, self._strike = count, strike
        self._guard, self._open = threading.Lock(), threading.Event()

    def arrive(self, beat):
        with self._guard:
            self._left -= 1
            last = self._left == 0
        if last:
            self._strike()
            self._open.set()
        end = time.monotonic() + 100
        while not self._open.wait(0.5):
            assert time.monotonic() < end, f"{self._left} trials have not come to their phase"
            beat()


def state_of(rank, step):
    rows = np.arange(64 * 1024, dtype=np.float32).reshape(64, 1024) + step
    return {"all": rows, "own": np.full(1000, rank + step), "step": step}


def outcome_of(rank, store, coordinator, way):
    """What a second save, over the first one or beside it, or a load of the first one came to, and when."""
    live = np.zeros((64, 1024), np.float32)
    try:
        if way == "load":
            mc.load(store, parts=["all"], into={"all": live}, coordinator=coordinator)
        else:
            step = {"save": 2, "overwrite": 1}[way]
            mc.save(store, state_of(rank, 2), step=step, overwrite=way == "overwrite", coordinator=coordinator)
        made = {"done": True}
    except BaseException as error:  # noqa: BLE001 - told to the test
        ranks = list(getattr(error, "ranks", ()))
        made = {"done": False, "error": type(error).__name__, "message": str(error), "ranks": ranks}
    return made | {"at": time.monotonic(), "changed": bool(live.any())}


def under_signal(rank, world, folder, *, roots, fault, victim):
    """Begin everything that can be done side by side; the victim gets its signal when each has come to its phase."""
    join()
    todo = trials(victim)
    inner = [TorchCoordinator(dist.new_group(), patience=PATIENCE) for _ in todo]
    for one in inner:  # connected before the time counts
        one.put(f"warm-0/word/{rank}", b"")
        one.put(f"warm-0/beat/{rank}", b"")
    mc.save(f"{roots}/warm", state_of(rank, 1), step=1, coordinator=TorchCoordinator(patience=60.0))
    outcomes = {}

    def strike():
        (Path(roots) / "struck").write_text(repr(time.monotonic()))
        os.kill(os.getpid(), SIGNALS[fault])
        time.sleep(0.5)  # another thread may be the one that is told, a moment later

    gate = Gate(len(todo), strike)

    def attempt(way, phase, coordinator):
        trap = Trap(phase if rank == victim else None, lambda: gate.arrive(ranks.beat))
        ranks = TrappedCoordinator(coordinator, trap)
        store = LocalStore(f"{roots}/{way} {phase}", calls=TrappedCalls(trap))
        outcomes[f"{way} {phase}"] = outcome_of(rank, store, ranks, way)

    threads = [threading.Thread(target=attempt, args=(*one, its)) for one, its in zip(todo, inner, strict=True)]
    dist.barrier()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
