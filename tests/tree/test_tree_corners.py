"""Corners that a change to the sources would turn unnoticed, and what must not be kept alive."""

import gc
import weakref
from dataclasses import make_dataclass

import numpy as np
import pytest
import torch
from tests.tree.carrying import fill, loaded, stored, trip

from model_checkpoint.errors import StructureMismatch
from model_checkpoint.tree import flatten, prepare, rng_state


def test_two_groups_of_shared_arrays_stay_two():
    """However the groups lie in memory, side by side or not."""
    memory = np.zeros(64, np.float32)
    one, other = memory[:8], memory[40:48]
    state = {"a": one, "b": one[2:], "c": other, "d": other[:4], "e": one[:4], "f": np.ones(2)}

    flat = flatten(state)
    back = trip(state)

    assert [leaf.name for leaf in flat.leaves] == ["a", "c", "f"]
    assert [leaf.nbytes for leaf in flat.leaves] == [32, 32, 16]
    back["a"][2], back["c"][0] = 5, 7
    assert (back["b"][0], back["e"][2], back["d"][0]) == (5, 5, 7)
    assert not np.shares_memory(back["a"], back["c"])


def adam(module):
    return torch.optim.Adam(module.parameters())


NO_STATES = [[1, 2], [1, 2, 3], 5, None, {"state": {}}, {"param_groups": []}, {"state": 1, "param_groups": 2}]


@pytest.mark.parametrize("saved", NO_STATES, ids=str)
def test_what_is_no_optimizer_state_is_refused(saved):
    live = adam(torch.nn.Linear(2, 2))

    with pytest.raises(StructureMismatch, match="opt: saved is no whole optimizer state"):
        loaded({"opt": saved}, {"opt": live})


def stepped(*, bias=True):
    module = torch.nn.Linear(2, 2, bias=bias)
    optimizer = adam(module)
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return module, optimizer


def test_parameters_of_other_names_are_refused_by_name():
    module, optimizer = stepped(bias=False)
    other = torch.nn.Module()
    other.kernel = torch.nn.Parameter(torch.zeros(2, 2))

    with pytest.raises(StructureMismatch, match=r"named or grouped otherwise.*model\.kernel.*model\.weight"):
        loaded({"model": module, "opt": optimizer}, {"opt": adam(other), "model": other})


@pytest.mark.parametrize("known", ["neither", "saved", "live"])
def test_where_one_side_has_no_names_positions_decide(known):
    module, optimizer = stepped()
    other = torch.nn.Linear(2, 2)
    live = adam(other)
    tree, entries, blobs, _ = stored({"model": module, "opt": optimizer} if known != "neither" else {"opt": optimizer})
    if known == "live":  # as an optimizer was saved whose module was somewhere else
        tree[1][3][4] = [[None, shape] for _, shape in tree[1][3][4]]

    fill(prepare(tree, entries, into={"opt": live, **({"model": other} if known == "live" else {})}), blobs)

    want, got = optimizer.state_dict()["state"], live.state_dict()["state"]
    assert all(torch.equal(want[i]["exp_avg"], got[i]["exp_avg"]) for i in want)


@pytest.mark.parametrize(("saved", "word"), [([1, 2], "a list"), ("ab", "a plain value"), ({"a": 1}, "a dict")])
def test_only_a_tuple_goes_into_a_live_tuple(saved, word):
    with pytest.raises(StructureMismatch, match=f"x: live it is a tuple, saved was {word}"):
        loaded({"x": saved}, {"x": (3, 4)})


def test_classes_of_the_callers_are_not_kept_alive():
    cls = make_dataclass("Passing", ["a"])
    holder = type("Holder", (), {"state_dict": lambda self: {"a": 1}, "load_state_dict": lambda self, state: None})
    trip({"r": cls([1]), "s": holder()}, types=[cls])
    loaded({"r": cls([1]), "s": holder()}, {"r": cls([2]), "s": holder()}, types=[cls])
    alive = [weakref.ref(cls), weakref.ref(holder)]

    del cls, holder
    gc.collect()

    assert [one() for one in alive] == [None, None]


def test_a_snapshot_of_the_generators_says_whose_they_are():
    assert repr(rng_state()) == "RngState(python, numpy, torch)"
