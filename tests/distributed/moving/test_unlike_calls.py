"""Ranks that do not mean the same checkpoint are told so, and nothing is done."""

import numpy as np
import pytest
from tests.distributed.threads import on_ranks, told

import model_checkpoint as mc
from model_checkpoint.distributed import DistributedCheckpoint, LoadOptions
from model_checkpoint.errors import OptionInvalid


@pytest.fixture
def roots(tmp_path):
    """Two folders, each with a checkpoint x and a checkpoint y."""
    made = [tmp_path / "one", tmp_path / "other"]
    for root in made:
        for name in "xy":
            mc.save(root, {"model": {"w": np.ones(2)}}, name=name)
    return made


@pytest.mark.parametrize(
    ("places", "prefixes", "what"), [((0, 0), "xy", "prefix='y', rank 0 with 'x'"), ((0, 1), "xx", "id=")]
)
def test_a_load_changes_nothing_unless_all_ranks_mean_the_same_checkpoint(roots, places, prefixes, what):
    lives = [{"w": np.zeros(2)} for _ in range(2)]

    def load(ranks):
        options = LoadOptions(checkpoint_prefix=prefixes[ranks.rank], load_optimizer=False)
        DistributedCheckpoint(ranks, roots[places[ranks.rank]]).load(lives[ranks.rank], None, options)

    error = told(on_ranks(2, load))

    assert isinstance(error, OptionInvalid)
    assert f"rank 1 calls with {what}" in str(error)
    assert [live["w"].tolist() for live in lives] == [[0, 0]] * 2


def test_a_deletion_removes_nothing_unless_all_ranks_mean_the_same_checkpoint(roots):
    error = told(on_ranks(2, lambda ranks: DistributedCheckpoint(ranks, roots[0]).delete_checkpoint("xy"[ranks.rank])))

    assert isinstance(error, OptionInvalid)
    assert "rank 1 calls with checkpoint_prefix='y', rank 0 with 'x'" in str(error)
    assert sorted(info.prefix for info in mc.list_checkpoints(roots[0])) == ["x", "y"]
