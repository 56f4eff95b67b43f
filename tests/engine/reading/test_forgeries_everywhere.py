"""Thousands of forged manifests at every door, of one process and of many ranks: typed errors, and quick ones."""

import time
import warnings
from contextlib import suppress

import numpy as np
import pytest
from tests.distributed.test_save_on_ranks import marked
from tests.distributed.threads import all_well, on_ranks
from tests.engine.reading.forging import Forger, read_manifest, read_rank, write_manifest, write_rank
from tests.engine.reading.test_forgeries import live, state

import model_checkpoint as mc
from model_checkpoint.errors import CheckpointException


@pytest.fixture
def generators_kept():
    before = mc.rng_state()
    yield
    before.restore()


def doors(root, *, tensor):
    """Every way in which a forged checkpoint, the newest of ``root``, is looked at."""
    return [
        lambda: mc.load(root),
        lambda: mc.load(root, framework="numpy"),
        lambda: mc.load(root, into=live(), strict=False),
        lambda: mc.load(root, mmap=True),
        lambda: mc.load(root, fallback=True),
        lambda: mc.load_slice(root, tensor, np.s_[1:2]),
        lambda: mc.describe(root),
        lambda: mc.verify(root),
        lambda: mc.diff(f"{root}@0", root),
        lambda: mc.list_checkpoints(root),
    ]


def use(door):
    """How many seconds of the processor a door took, and whether it ended without an error; one of ours is no harm."""
    started, fine = time.process_time(), False
    with suppress(CheckpointException), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        door()
        fine = True
    return time.process_time() - started, fine


@pytest.mark.slow
@pytest.mark.usefixtures("generators_kept")
def test_five_thousand_forgeries_end_by_type_or_load_within_a_second(tmp_path):
    mc.save(tmp_path, state(), step=0)
    folder = mc.save(tmp_path, state(), step=1, metrics={"a": 0.5}, metadata={"k": [1, {"b": 2.5}]}).path
    top, forger = read_manifest(folder), Forger(0)
    uses = doors(tmp_path, tensor="views.tt")
    for door in uses:
        use(door)  # so that the first forgery does not pay for an import
    slowest = fine = 0

    for case in range(5_000):
        write_manifest(folder, forger.forge(top))
        seconds, ended = use(uses[case % len(uses)])
        slowest, fine = max(slowest, seconds), fine + ended

    assert slowest < 1, slowest
    assert fine > 500, fine


def saved_by_ranks(root, *, step):
    """The folder of a checkpoint that two ranks wrote, each half of the rows."""
    rows = np.arange(40.0).reshape(20, 2)

    def save(ranks):
        part = marked(rows, (10 * ranks.rank, 0), (10, 2))
        return mc.save(root, {"same": np.arange(7), "rows": part, "epoch": 1}, step=step, coordinator=ranks)

    return all_well(on_ranks(2, save))[0].path


@pytest.mark.slow
def test_two_thousand_forgeries_of_what_many_ranks_wrote_end_by_type_or_load_within_a_second(tmp_path):
    """Of the manifests of the ranks, and of the one that signs them."""
    saved_by_ranks(tmp_path, step=0)
    folder = saved_by_ranks(tmp_path, step=1)
    top, forger = read_manifest(folder), Forger(2)
    parts = [read_rank(folder, top, rank) for rank in (0, 1)]
    uses = doors(tmp_path, tensor="rows")
    for door in uses:
        use(door)  # so that the first forgery does not pay for an import
    slowest = fine = 0

    for case in range(2_000):
        rank = case % 2
        if case % 4 == 3:
            write_manifest(folder, forger.forge(top))
        else:
            write_rank(folder, top, rank, forger.forge_rank(parts[rank]))
        seconds, ended = use(uses[case // 4 % len(uses)])
        slowest, fine = max(slowest, seconds), fine + ended
        write_rank(folder, top, rank, parts[rank])

    assert slowest < 1, slowest
    assert fine > 200, fine


PIECES = {
    "offsets of another rank": lambda top, part: part["pieces"][0].__setitem__(2, [0, 0, 0]),
    "fewer layouts than arrays": lambda top, part: top["placed"].pop(),
    "a layout that is not there": lambda top, part: top["placed"].__setitem__(0, 9),
    "a tree that names a piece": lambda top, part: top.update(tree=["d", ["x", ["a", 3]]]),
}


@pytest.mark.parametrize("forge", PIECES.values(), ids=PIECES)
def test_pieces_that_no_rank_writes_are_refused_by_type(tmp_path, forge):
    folder = saved_by_ranks(tmp_path, step=1)
    top = read_manifest(folder)
    part = read_rank(folder, top, 1)
    forge(top, part)
    write_rank(folder, top, 1, part)

    for look in (mc.load, mc.describe):
        with pytest.raises(CheckpointException, match=r"step-00000001|tree:|^x"):
            look(tmp_path)
