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
BUCKET_PATIENCE = 16.0  # a small server answers all trials at once
BESIDE = ("save", "async", "consolidated")  # ways that save a second checkpoint; others replace or load the first one
WHOLE = ("consolidated", "replaced whole")  # ways in which rank 0 makes files of whole tensors from the parts of all
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
# What may be going on in a rank, by what it does: words it is about to say or has just said, calls to its disk.
FOLLOWER = {
    "save": ["hello", "detail", "write", "flush", "vote said"],
    "async": ["write", "vote said"],
    "consolidated": ["vote said"],
    "overwrite": ["write", "vote said"],
    "replaced whole": ["vote said"],
    "load": ["hello", "ready0", "done0"],
}
LEADER = {
    "save": ["open", "pooled", "write", "flush", "publish", "published"],
    "async": ["write", "publish", "published"],
    "consolidated": ["index", "publish"],
    "overwrite": ["write", "publish", "published"],
    "replaced whole": ["index", "publish", "published"],
    "load": ["open0", "go0", "end0"],
}


# The same for a bucket: one object has the verdict, another one carries it out.
KEYS = {".safetensors": "data", ".verdict": "verdict", "/manifest.json": "manifest"}
BUCKET_FOLLOWER = {"save": ["hello", "data", "data put", "vote said"], "overwrite": ["data put"]}
BUCKET_LEADER = {
    "save": ["open", "data", "data put", "verdict", "verdict put", "manifest put"],
    "overwrite": ["data put", "verdict", "verdict put", "manifest put"],
}


def trials(victim):
    """Every way and phase in which something may happen to a rank."""
    return [(way, phase) for way, phases in (FOLLOWER if victim else LEADER).items() for phase in phases]


def bucket_trials(victim):
    """The same where checkpoints lie in a bucket."""
    phases = BUCKET_FOLLOWER if victim else BUCKET_LEADER
    return [(way, phase) for way, phases in phases.items() for phase in phases]


class Trap:
    """Springs once, at the chosen moment of the chosen rank."""

    def __init__(self, phase, spring):
        self.phase, self._spring = phase, spring

    def at(self, *phases):
        if self.phase in phases:
            self.phase = None
            self._spring()


class TrappedCalls(Syscalls):
    """The system, with a trap."""

    def __init__(self, trap):
        super().__init__()
        self.trap = trap

    def open(self, path, flags, *, folder=None):
        if flags & os.O_CREAT and path.endswith("model.safetensors.index.json"):
            self.trap.at("index")
        return super().open(path, flags, folder=folder)

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

    def exchange(self, one, other):
        publishing = "checkpoints" in other
        if publishing:
            self.trap.at("publish")
        super().exchange(one, other)
        if publishing:
            self.trap.at("published")


class SlowCalls(Syscalls):
    """The system, with a disk that takes its time for every write, one after the other."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.writes = seconds, 0
        self._turn = threading.Lock()

    def pwrite(self, fd, data, offset):
        with self._turn:
            time.sleep(self.seconds)
            self.writes += 1
            return super().pwrite(fd, data, offset)


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
            options = {"step": 2 if way in BESIDE else 1, "overwrite": way not in BESIDE, "coordinator": coordinator}
            if way in WHOLE:
                options["format"] = mc.CheckpointFormat.CONSOLIDATED
            if way == "async":
                mc.save_async(store, state_of(rank, 2), **options).result()
            else:
                mc.save(store, state_of(rank, 2), **options)
        made = {"done": True}
    except BaseException as error:  # noqa: BLE001 - told to the test
        ranks = list(getattr(error, "ranks", ()))
        made = {"done": False, "error": type(error).__name__, "message": str(error), "ranks": ranks}
    return made | {"at": time.monotonic(), "changed": bool(live.any())}


def beside_a_slow_disk(rank, world, folder, *, root, patience, seconds, slow):
    """Save with a rank whose disk is slow; tell how many writes this rank made, and how long they took."""
    join()
    calls = SlowCalls(seconds if rank == slow else 0.0)
    own = np.full(9 << 20 if rank == slow else 10, rank, np.int32)
    warm = TorchCoordinator(patience=60.0)
    mc.save(root, {"at": rank}, step=1, coordinator=warm)
    mc.save(LocalStore(root, calls=calls), {"own": own}, step=2, coordinator=TorchCoordinator(patience=patience))
    return {"writes": calls.writes, "slept": calls.writes * calls.seconds}


def under_signal(rank, world, folder, *, roots, fault, victim):
    """Begin everything that can be done side by side; the victim gets its signal when each has come to its phase."""

    def store_of(name, trap):
        return LocalStore(f"{roots}/{name}", calls=TrappedCalls(trap))

    return _struck(rank, trials(victim), store_of, PATIENCE, roots=roots, fault=fault, victim=victim)


def killed_at_a_bucket(rank, world, folder, *, roots, root, environment, victim):
    """The same, with every checkpoint in a bucket."""
    os.environ.update(environment)
    from model_checkpoint.storage import ObjectStore
    from model_checkpoint.storage.objects.requests.bucket import Bucket

    class TrappedBucket(Bucket):
        """A bucket, with a trap."""

        def _call(self, key, doing, call, request=None):
            kinds = [kind for end, kind in KEYS.items() if key.endswith(end) and doing == "could not be written"]
            self.trap.at(*kinds)
            made = super()._call(key, doing, call, request)
            self.trap.at(*[f"{kind} put" for kind in kinds])
            return made

    def store_of(name, trap):
        store = ObjectStore(f"{root}/{name.replace(' ', '-')}")
        store._bucket = TrappedBucket(store._bucket.address, store._bucket.client)
        store._bucket.trap = trap
        return store

    return _struck(rank, bucket_trials(victim), store_of, BUCKET_PATIENCE, roots=roots, fault="kill", victim=victim)


def _struck(rank, todo, store_of, patience, *, roots, fault, victim):
    inner = connected(rank, [patience] * len(todo))
    warm = TorchCoordinator(patience=60.0)
    mc.save(store_of("warm", Trap(None, None)), state_of(rank, 1), step=1, coordinator=warm)
    outcomes = {}
    gate = Gate(len(todo), lambda: strike(roots, fault))

    def attempt(way, phase, coordinator):
        trap = Trap(phase if rank == victim else None, lambda: gate.arrive(ranks.beat))
        ranks = TrappedCoordinator(coordinator, trap)
        outcomes[f"{way} {phase}"] = outcome_of(rank, store_of(f"{way} {phase}", trap), ranks, way)

    side_by_side(attempt, [(*one, its) for one, its in zip(todo, inner, strict=True)])
    return outcomes


def connected(rank, patiences):
    """A coordinator for each of what is done side by side, connected before the time counts."""
    join()
    made = [TorchCoordinator(dist.new_group(), patience=patience) for patience in patiences]
    for one in made:
        one.put(f"warm-0/word/{rank}", b"")
        one.put(f"warm-0/beat/{rank}", b"")
    return made


def strike(roots, fault):
    """Give this process its signal, and write down when."""
    (Path(roots) / "struck").write_text(repr(time.monotonic()))
    os.kill(os.getpid(), SIGNALS[fault])
    time.sleep(0.5)  # another thread may be the one that is told, a moment later


def side_by_side(attempt, each):
    """Begin ``attempt(*one)`` for each, on all ranks at one time, and wait for them."""
    threads = [threading.Thread(target=attempt, args=one) for one in each]
    dist.barrier()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
