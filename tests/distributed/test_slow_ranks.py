"""A rank that works for longer than the patience before it says a word, but moves bytes meanwhile, is waited for."""

import threading

import numpy as np
import pytest
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.distributed import CheckpointCoordinator, CheckpointLoader, DistributedCheckpoint, LoadOptions
from model_checkpoint.distributed.records.shard_data import ShardData
from model_checkpoint.engine.writing import incremental
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls

pytestmark = pytest.mark.slow

MIB = 1 << 20
PATIENCE, STEP = 3.0, 0.2  # seconds; of a step, of which there are more than fit into the patience
LARGE = (np.arange(96 * MIB) % 251).astype(np.uint8)


class SlowReads(Syscalls):
    """A disk that takes its time for every chunk, one after the other."""

    def __init__(self):
        super().__init__()
        self.turn, self.count = threading.Lock(), 0

    def preadv(self, fd, buffer, offset):
        if len(buffer) >= MIB:
            with self.turn:
                self.count += 1
                threading.Event().wait(STEP)
        return super().preadv(fd, buffer, offset)


def slow_on_rank_0(root, work):
    """What ``work(ranks, store)`` came to on two ranks, the disk of one of which is slow; and how slow it was."""
    disk = SlowReads()

    def run(ranks):
        return work(ranks, LocalStore(root, calls=disk) if ranks.rank == 0 else LocalStore(root))

    return all_well(on_ranks(2, run, patience=PATIENCE)), disk.count * STEP


class OneThreadTalks:
    """A coordinator of which only the thread that made it may talk; what others say waits for it to come by."""

    def __init__(self, inner):
        self._inner, self._owner, self._waiting = inner, threading.get_ident(), []

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def put(self, key, value):
        self._waiting.append((key, value))
        self.attend()

    def attend(self):
        while self._waiting and threading.get_ident() == self._owner:
            self._inner.put(*self._waiting.pop(0))


@pytest.mark.parametrize(("before", "talks"), [(False, lambda ranks: ranks), (True, OneThreadTalks)])
def test_a_rank_that_fingerprints_much_is_waited_for(tmp_path, monkeypatch, before, talks):
    digest, turn, took = incremental._digest, threading.Lock(), []

    def slowly(leaf, start, stop):
        if leaf.name.startswith("own"):
            with turn:
                threading.Event().wait(STEP)
                took.append(STEP)
        return digest(leaf, start, stop)

    def save(step):
        def work(ranks):
            own = {"own": LARGE} if ranks.rank == 1 else {}
            mc.save(tmp_path, {"all": step} | own, step=step, coordinator=talks(ranks), incremental=before)

        all_well(on_ranks(2, work, patience=PATIENCE))

    if before:
        save(1)
    monkeypatch.setattr(incremental, "_digest", slowly)
    save(2)

    assert sum(took) > (1 + before) * PATIENCE  # once for the others, and once to build on what was saved before


def test_a_rank_that_validates_much_is_waited_for(tmp_path):
    mc.save(tmp_path, {"model": {"w": LARGE}}, name="x")

    def work(ranks, store):
        model = {"w": np.zeros_like(LARGE)}
        options = LoadOptions(checkpoint_prefix="x", load_optimizer=False)
        DistributedCheckpoint(ranks, store).load(model, None, options)
        return np.array_equal(model["w"], LARGE)

    well, seconds = slow_on_rank_0(tmp_path, work)

    assert well == [True, True]
    assert seconds > PATIENCE


def test_a_rank_that_maps_much_is_waited_for(tmp_path):
    mc.save(tmp_path, {"w": LARGE}, step=1)

    def work(ranks, store):
        return np.array_equal(mc.load(store, coordinator=ranks, mmap=True)["w"], LARGE)

    well, seconds = slow_on_rank_0(tmp_path, work)

    assert well == [True, True]
    assert seconds > PATIENCE


def test_a_rank_that_reads_shards_of_bytes_is_waited_for(tmp_path):
    def save(ranks):
        shard = ShardData.of({"w": LARGE if ranks.rank == 0 else LARGE[:9]})
        CheckpointCoordinator(ranks, tmp_path).coordinate_save("x", lambda: shard)

    all_well(on_ranks(2, save))

    def work(ranks, store):
        return len(CheckpointLoader(ranks, store).coordinate_load("x").shards[0].data)

    sizes, seconds = slow_on_rank_0(tmp_path, work)

    assert sizes == [LARGE.nbytes, 9]
    assert seconds > PATIENCE
