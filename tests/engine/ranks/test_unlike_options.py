"""Ranks that do not ask for the same are told so by name on all of them, and nothing is saved, nothing changed."""

import inspect

import numpy as np
import pytest
from tests.distributed.threads import all_well, on_ranks, told

import model_checkpoint as mc
from model_checkpoint.errors import CheckpointException, OptionInvalid, RankFailed, RootNotShared, WrongReference
from model_checkpoint.storage.memory import InMemoryStore

SAVED = {  # what ranks 0 and 2 ask for, and what rank 1 does
    "step": (2, 3),
    "name": ("a", "b"),
    "id": ("0123456789", None),
    "overwrite": (True, "damaged"),
    "format": (mc.CheckpointFormat.MULTI_SHARD, mc.CheckpointFormat.CONSOLIDATED),
    "compression": (mc.CompressionLevel.NONE, mc.CompressionLevel.FAST),
    "incremental": (False, True),
    "parity": ("xor", None),
    "mirror": (None, "memory://unlike-copy"),
}
SAVES_OF_EACH = {"metrics": ({"loss": 1.0}, {"loss": 2.0}), "metadata": ({}, {"by": 1}), "progress": (None, print)}
LOADED = {
    "step": (1, 2),
    "id": ("a", "b"),
    "best": ("loss", "min:loss"),
    "name": ("step-00000001", "step-00000002"),
    "parts": (["w", "b"], ["w"]),
    "framework": ("numpy", None),
    "mmap": (False, True),
    "verify": ("fast", "full"),
    "strict": (True, False),
    "rename": ({"w": "v"}, str.upper),
    "fallback": (True, False),
    "atomic": (False, True),
    "cast": (False, True),
    "reshard": ("parallel", "simple"),
}
LOADS_OF_EACH = {
    "into": (None, {"w": np.zeros(2), "b": 0}),
    "types": ((), [OptionInvalid]),
    "device": (None, "cpu"),
    "progress": (None, print),
    "report": (None, print),
    "per_rank": (0, 1),
}


@pytest.fixture
def root(tmp_path):
    """A root with two checkpoints."""
    for step in (1, 2):
        mc.save(tmp_path / "root", {"w": np.ones(2), "b": step}, step=step, metrics={"loss": 1.0})
    return tmp_path / "root"


def test_each_option_is_known_as_one_of_all_ranks_or_of_each():
    places = {"root", "state", "coordinator"}  # roots may be spelt differently: what is there decides

    assert {*SAVED, *SAVES_OF_EACH} == {*inspect.signature(mc.save).parameters} - places
    assert {*LOADED, *LOADS_OF_EACH} == {*inspect.signature(mc.load).parameters} - places


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("save", [mc.save, lambda *given, **asked: mc.save_async(*given, **asked).result()])
def test_a_save_publishes_nothing_unless_all_ranks_ask_for_the_same(name, save):
    where = f"memory://unlike-{name}"
    error = told(on_ranks(3, lambda c: save(where, {"a": 1}, coordinator=c, **{name: SAVED[name][c.rank == 1]})))

    assert isinstance(error, OptionInvalid), error
    assert f"rank 1 calls with {name}=" in str(error)
    assert "rank 0, 2 with " in str(error)
    assert not InMemoryStore(where).exists()


@pytest.mark.parametrize("name", SAVES_OF_EACH)
def test_what_ranks_of_a_save_say_of_their_own_is_as_rank_0_says(root, name):
    infos = all_well(
        on_ranks(
            3, lambda c: mc.save(root, {"a": 1}, step=3, coordinator=c, **{name: SAVES_OF_EACH[name][c.rank == 1]})
        )
    )

    given = {name: SAVES_OF_EACH[name][0]}
    assert {str(info.metrics) for info in infos} == {str(given.get("metrics", {}))}
    assert {str(info.metadata) for info in infos} == {str(given.get("metadata", {}))}


@pytest.mark.parametrize("name", LOADED)
def test_a_load_changes_nothing_unless_all_ranks_ask_for_the_same(root, name):
    lives = [{"w": np.zeros(2), "b": 0} for _ in range(3)]
    error = told(
        on_ranks(3, lambda c: mc.load(root, into=lives[c.rank], coordinator=c, **{name: LOADED[name][c.rank == 1]}))
    )

    assert isinstance(error, OptionInvalid), error
    assert f"rank 1 calls with {name}=" in str(error)
    assert "rank 0, 2 with " in str(error)
    assert [str(live) for live in lives] == [str({"w": np.zeros(2), "b": 0})] * 3


@pytest.mark.parametrize("name", LOADS_OF_EACH)
def test_what_each_rank_of_a_load_may_say_for_itself_is_its_own(root, name):
    loaded = all_well(on_ranks(3, lambda c: mc.load(root, coordinator=c, **{name: LOADS_OF_EACH[name][c.rank == 1]})))

    assert [(one["w"].tolist(), one["b"]) for one in loaded] == [([1.0, 1.0], 2)] * 3


def test_a_reference_and_a_step_that_mean_the_same_are_the_same_call(root):
    loaded = all_well(
        on_ranks(
            2, lambda c: mc.load(f"{root}@1" if c.rank else root, step=None if c.rank else np.int8(1), coordinator=c)
        )
    )

    assert [one["b"] for one in loaded] == [1, 1]


def test_an_option_that_only_one_rank_has_wrong_is_told_on_all(root):
    error = told(on_ranks(2, lambda c: mc.load(root, step="x" if c.rank else None, coordinator=c)))

    assert (type(error), "step must be a whole number" in str(error)) == (OptionInvalid, True), error


def test_ranks_of_different_roots_are_told_which(root, tmp_path):
    roots = [root, tmp_path / "other"]

    saved = told(on_ranks(2, lambda c: mc.save(roots[c.rank], {"a": 1}, step=3, coordinator=c)))
    missing = told(on_ranks(2, lambda c: mc.load(roots[c.rank], coordinator=c)))
    mc.save(roots[1], {"w": np.zeros(2), "b": 2}, step=2)
    unlike = told(on_ranks(2, lambda c: mc.load(roots[c.rank], coordinator=c)))

    assert [type(one) for one in (saved, missing, unlike)] == [RootNotShared, RankFailed, OptionInvalid]
    for one in (saved, missing):
        assert f"Rank 0 calls with root='{roots[0]}', this rank with '{roots[1]}'" in str(one)
    assert f"rank 1 calls with root='{roots[1]}', rank 0 with '{roots[0]}'" in str(unlike)
    assert [info.step for info in mc.list_checkpoints(root)] == [2, 1]


def test_what_only_rank_0_is_asked_for_and_cannot_find_is_told_on_all(root):
    error = told(on_ranks(2, lambda c: mc.load(root, step=7, coordinator=c)))

    assert isinstance(error, WrongReference)
    assert isinstance(error, CheckpointException)
