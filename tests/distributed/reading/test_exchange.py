"""What all ranks load is read from the store by one of them, where the coordinator can hand it to the others."""

import os
import threading
from functools import partial

import numpy as np
import pytest
from tests.distributed.counted_calls import CountedCalls
from tests.distributed.threads import all_well, on_ranks, told

import model_checkpoint as mc
from model_checkpoint.distributed import Shard
from model_checkpoint.engine.reading.chunks import exchanged_chunks
from model_checkpoint.storage.local.store import LocalStore

SCENES = "tests.distributed.scenes"
WORLD = 4
MIB = 1 << 20
SIZES = (6 * MIB, 9 * MIB, 40)  # whole chunks, ends of chunks, and a chunk shared with others


class Table:
    """Where threads hand buffers to each other; what lies on it may be spoilt."""

    def __init__(self, world, spoil=lambda rank, turn, buffers: None):
        self.barrier, self.given, self.turns = threading.Barrier(world, timeout=30), [b""] * world, [0] * world
        self.spoil = spoil

    def exchange(self, rank, buffers):
        self.turns[rank] += 1
        self.given[rank] = bytes(buffers[rank])
        self.barrier.wait()
        for other, buffer in enumerate(buffers):
            buffer[:] = self.given[other]
        self.barrier.wait()
        self.spoil(rank, self.turns[rank], buffers)


def state(rank=0):
    return {f"x{i}": np.arange(size, dtype=np.uint8) + i for i, size in enumerate(SIZES)} | {"own": rank}


def flip_bit(info, at):
    """Damage the only data file of a checkpoint."""
    (file,) = [name for name in os.listdir(info.path) if name.endswith(".safetensors")]
    with open(f"{info.path}/{file}", "r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)
        stream.seek(at)
        stream.write(bytes([byte[0] ^ 1]))


def load_all(root, table, *, live=True, parts=("x0", "x1", "x2"), without=()):
    """What each rank has loaded, and how many bytes each has read for it."""

    def work(ranks):
        if table is not None and ranks.rank not in without:
            ranks.exchange = partial(table.exchange, ranks.rank)
        calls = CountedCalls()
        into = {name: np.zeros_like(state()[name]) for name in parts} if live else None
        got = mc.load(LocalStore(root, calls=calls), parts=list(parts), into=into, coordinator=ranks)
        assert all(np.array_equal(got[name], state()[name]) for name in parts)
        return calls.nbytes

    return on_ranks(WORLD, work)


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("many", [True, False])
def test_what_all_ranks_want_is_read_once(tmp_path, many, live):
    if many:
        all_well(on_ranks(3, lambda ranks: mc.save(tmp_path, state(ranks.rank), step=1, coordinator=ranks)))
    else:
        mc.save(tmp_path, state(), step=1)
    table = Table(WORLD)

    apart = all_well(load_all(tmp_path, None, live=live))
    together = all_well(load_all(tmp_path, table, live=live))

    assert sum(apart) > WORLD * sum(SIZES)
    assert sum(together) < 1.05 * sum(SIZES)
    assert max(together) < 0.5 * sum(SIZES)
    assert min(table.turns) > 0


def test_what_only_some_ranks_want_is_read_by_those(tmp_path):
    whole = np.arange(8 * MIB, dtype=np.uint8).reshape(8, MIB)
    mc.save(tmp_path, {"all": state()["x0"], "rows": whole}, step=1)
    table = Table(WORLD)

    def work(ranks):
        ranks.exchange = partial(table.exchange, ranks.rank)
        rows = Shard(np.zeros((2, MIB), np.uint8), global_shape=(8, MIB), offsets=(2 * ranks.rank, 0))
        live = {"all": np.zeros_like(state()["x0"]), "rows": rows}
        mc.load(tmp_path, into=live, coordinator=ranks)
        assert np.array_equal(live["all"], state()["x0"])
        assert np.array_equal(live["rows"].array, whole[2 * ranks.rank : 2 * ranks.rank + 2])
        return True

    assert all_well(on_ranks(WORLD, work)) == [True] * WORLD
    assert min(table.turns) > 0


def test_an_exchange_that_fails_midway_leaves_the_rest_to_each_rank(tmp_path, monkeypatch):
    monkeypatch.setattr(exchanged_chunks, "_ROUND_BYTES", 4 * MIB)
    mc.save(tmp_path, state(), step=1)

    def fail(rank, turn, buffers):
        if turn == 2:
            raise RuntimeError("the network is gone")

    table = Table(WORLD, fail)
    read = all_well(load_all(tmp_path, table))

    assert table.turns == [2] * WORLD
    assert sum(SIZES) < sum(read) < WORLD * sum(SIZES)


def test_what_is_spoilt_on_the_way_is_read_from_the_store(tmp_path):
    mc.save(tmp_path, state(), step=1)

    def spoil(rank, turn, buffers):
        if rank == 2:
            for other, buffer in enumerate(buffers):
                if other != rank and len(buffer):
                    buffer[0] ^= 1

    read = all_well(load_all(tmp_path, Table(WORLD, spoil)))

    assert read[2] == max(read) > 2 * read[1]


def test_damage_on_the_medium_is_told_by_all_ranks_alike(tmp_path):
    info = mc.save(tmp_path, state(), step=1)
    flip_bit(info, 8 * MIB)

    error = told(load_all(tmp_path, Table(WORLD)))

    assert "does not have the recorded digest" in str(error)


def test_ranks_of_which_one_cannot_exchange_read_apart(tmp_path):
    mc.save(tmp_path, state(), step=1)
    table = Table(WORLD)

    read = all_well(load_all(tmp_path, table, without=(3,)))

    assert min(read) > sum(SIZES)
    assert max(table.turns) == 0


@pytest.mark.slow
@pytest.mark.distributed
def test_ranks_joined_by_gloo_send_each_other_what_all_want(zygote, tmp_path):
    mc.save(tmp_path, state(), step=1)

    read = zygote.run(f"{SCENES}:load_once", 3, tmp_path / "scene", root=str(tmp_path), size=sum(SIZES))

    assert sum(read) < 1.05 * sum(SIZES)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.fault
def test_a_rank_that_dies_in_an_exchange_is_named_by_the_others(zygote, tmp_path):
    mc.save(tmp_path, state(), step=1)

    group = zygote.start(f"{SCENES}:load_once", 3, tmp_path / "scene", root=str(tmp_path), size=0, dies=1)
    try:
        for result in group.results([0, 2]):
            assert (result["error"], result["ranks"]) == ("RankLost", [1])
    finally:
        group.end()
