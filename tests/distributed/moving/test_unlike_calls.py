"""Ranks that do not mean the same checkpoint are told so, and nothing is done."""

import dataclasses

import numpy as np
import pytest
from tests.distributed.threads import all_well, on_ranks, told

import model_checkpoint as mc
from model_checkpoint.distributed import DistributedCheckpoint, LoadOptions, SaveOptions
from model_checkpoint.errors import OptionInvalid, RootNotShared

SAVED = {  # what rank 0 and 2 ask for, and what rank 1 does
    "checkpoint_prefix": ("a", "b"),
    "format": (mc.CheckpointFormat.MULTI_SHARD, mc.CheckpointFormat.SINGLE_FILE),
    "compression_level": (mc.CompressionLevel.NONE, mc.CompressionLevel.FAST),
    "include_optimizer": (True, False),
    "include_rng_state": (False, True),
    "overwrite": (False, True),
}
SAVES_OF_EACH = {"timeout": (60, 70), "custom_metadata": ({"by": "rank 0"}, {"by": "rank 1"})}
LOADED = {
    "checkpoint_prefix": ("x", "y"),
    "load_optimizer": (False, True),
    "load_rng_state": (False, True),
    "resharding_strategy": ("parallel", "simple"),
    "skip_validation": (False, True),
    "strict_mode": (True, False),
}
LOADS_OF_EACH = {"timeout": (60, 70), "per_rank": (0, 1)}


@pytest.fixture
def roots(tmp_path):
    """Two folders, each with a checkpoint x and a checkpoint y."""
    made = [tmp_path / "one", tmp_path / "other"]
    for root in made:
        for name in "xy":
            mc.save(root, {"model": {"w": np.ones(2)}}, name=name)
    return made


@pytest.mark.parametrize(
    ("places", "prefixes", "what"), [((0, 0), "xy", "checkpoint_prefix='y', rank 0 with 'x'"), ((0, 1), "xx", "root=")]
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


def test_each_option_is_known_as_one_of_all_ranks_or_of_each():
    assert {*SAVED, *SAVES_OF_EACH} == {one.name for one in dataclasses.fields(SaveOptions)}
    assert {*LOADED, *LOADS_OF_EACH} == {one.name for one in dataclasses.fields(LoadOptions)}


def printed(value):
    return repr(getattr(value, "value", value))


def expected(name, values):
    alike, odd = map(printed, values)
    return f"rank 1 calls with {name}={odd}, rank 0, 2 with {alike}. Every rank must make the same call."


@pytest.mark.parametrize("name", SAVED)
def test_a_save_publishes_nothing_unless_all_ranks_ask_for_the_same(tmp_path, name):
    def save(ranks):
        asked = {"include_rng_state": False, name: SAVED[name][ranks.rank == 1]}
        DistributedCheckpoint(ranks, tmp_path).save({"w": np.ones(2)}, {"lr": 0.1}, SaveOptions(**asked))

    error = told(on_ranks(3, save))

    assert (type(error), expected(name, SAVED[name]) in str(error)) == (OptionInvalid, True), error
    assert list(tmp_path.rglob("*.*")) == []


@pytest.mark.parametrize("name", SAVES_OF_EACH)
def test_what_each_rank_of_a_save_may_say_for_itself_is_the_word_of_rank_0(tmp_path, name):
    def save(ranks):
        asked = {"checkpoint_prefix": "a", name: SAVES_OF_EACH[name][ranks.rank == 1]}
        return DistributedCheckpoint(ranks, tmp_path).save({"w": np.ones(2)}, {"lr": 0.1}, SaveOptions(**asked))

    assert all_well(on_ranks(3, save)) == ["a"] * 3
    assert mc.list_checkpoints(tmp_path)[0].metadata == ({"by": "rank 0"} if name == "custom_metadata" else {})


@pytest.mark.parametrize("name", LOADED)
def test_a_load_changes_nothing_unless_all_ranks_ask_for_the_same(roots, name):
    lives = [{"w": np.zeros(2)} for _ in range(3)]

    def load(ranks):
        asked = {"checkpoint_prefix": "x", "load_optimizer": False, "load_rng_state": False}
        asked[name] = LOADED[name][ranks.rank == 1]
        DistributedCheckpoint(ranks, roots[0]).load(lives[ranks.rank], None, LoadOptions(**asked))

    error = told(on_ranks(3, load))

    assert (type(error), expected(name, LOADED[name]) in str(error)) == (OptionInvalid, True), error
    assert [live["w"].tolist() for live in lives] == [[0, 0]] * 3


@pytest.mark.parametrize("name", LOADS_OF_EACH)
def test_what_each_rank_of_a_load_may_say_for_itself_is_its_own(roots, name):
    lives = [{"w": np.zeros(2)} for _ in range(3)]

    def load(ranks):
        asked = {"checkpoint_prefix": "x", "load_optimizer": False, name: LOADS_OF_EACH[name][ranks.rank == 1]}
        DistributedCheckpoint(ranks, roots[0]).load(lives[ranks.rank], None, LoadOptions(**asked))

    all_well(on_ranks(3, load))
    assert [live["w"].tolist() for live in lives] == [[1, 1]] * 3


def test_a_rank_that_names_no_checkpoint_fails_all_at_once(roots):
    def load(ranks):
        options = LoadOptions(checkpoint_prefix=None if ranks.rank else "x")
        DistributedCheckpoint(ranks, roots[0]).load({"w": np.zeros(2)}, None, options)

    error = told(on_ranks(2, load))

    assert (type(error), "load needs LoadOptions(checkpoint_prefix=...)" in str(error)) == (OptionInvalid, True), error


def test_ranks_that_save_to_different_roots_are_told_which(roots):
    def save(ranks):
        checkpoint = DistributedCheckpoint(ranks, roots[ranks.rank])
        checkpoint.save({"w": np.ones(2)}, {"lr": 0.1}, SaveOptions(checkpoint_prefix="z"))

    error = told(on_ranks(2, save))

    assert isinstance(error, RootNotShared)
    assert f"Rank 0 calls with root='{roots[0]}', this rank with '{roots[1]}'" in str(error)
    assert [sorted(one.prefix for one in mc.list_checkpoints(root)) for root in roots] == [["x", "y"]] * 2
