"""Ranks that are about to end save together what each has time for, and nothing that is saved already."""

import numpy as np
import pytest
from tests.distributed.test_save_on_ranks import marked
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.engine.background.preemption import preemption
from model_checkpoint.engine.writing import bandwidth
from model_checkpoint.errors import RankFailed

ROWS = np.arange(2000.0).reshape(1000, 2)  # 8000 bytes on each of two ranks
SAME = np.ones(1001)  # 8008 bytes, of which a rank writes 4004
DEADLINE = 1000.0  # seconds, of which a test takes a thousandth at most
MARGIN = 0.7  # of the time is counted on


@pytest.fixture
def root(tmp_path):
    yield f"memory://{tmp_path.name}"
    bandwidth._rates.pop(f"memory://{tmp_path.name}", None)


def saved(root, *, step=7):
    def save(ranks):
        rows = marked(ROWS, (500 * ranks.rank, 0), (500, 2))
        with preemption(deadline=DEADLINE, signals=(), parts=["rows", "same"]) as notice:
            return notice.save(root, {"rows": rows, "same": SAME, "epoch": 3}, step=step, coordinator=ranks)

    return all_well(on_ranks(2, save))


@pytest.mark.parametrize(("budget", "left_out"), [(12_100, ()), (11_900, ("same",))])
def test_a_rank_counts_its_own_part_of_an_array_and_its_share_of_what_all_have(root, budget, left_out):
    seconds = DEADLINE * MARGIN * (64 << 20) / budget
    bandwidth.note(root, 64 << 20, seconds)

    infos = saved(root)

    assert {info.left_out for info in infos} == {left_out}
    assert np.array_equal(mc.load(root, step=7, parts="rows")["rows"], ROWS)


def test_a_step_that_is_saved_already_is_told_to_every_rank_and_not_saved_again(root):
    first = saved(root)

    again = saved(root)

    assert {info.id for info in again} == {info.id for info in first}
    assert [info.step for info in mc.list_checkpoints(root)] == [7]


def test_a_rank_that_does_not_find_what_rank_zero_finds_says_so(root):
    saved(root)

    def save(ranks):
        with preemption(deadline=DEADLINE, signals=()) as notice:
            mine = root if ranks.rank == 0 else f"{root}-elsewhere"
            return notice.save(mine, {"same": SAME}, step=7, coordinator=ranks)

    first, second = on_ranks(2, save)

    assert first.step == 7
    with pytest.raises(RankFailed, match=r"step-00000007: rank 0 finds this checkpoint, but it is not there on this"):
        raise second
