"""Names are unique and safe; trees can be reduced, renamed and told about by them."""

import enum
import json
import string

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tree.carrying import stored

from model_checkpoint.errors import StructureMismatch, UnsupportedType
from model_checkpoint.tree import flatten, rename, rng_state, select, specs, summary
from model_checkpoint.tree.nodes.names import dotted, escape, stay_dotted, undotted, unescape
from model_checkpoint.tree.values.plain import plain_values, shorten


class Way(enum.Enum):
    UP = 1


def names(state):
    return [leaf.name for leaf in flatten(state).leaves]


def one():
    return np.ones(1)


def test_look_alike_paths_have_their_own_names():
    state = {
        1: one(), "1": one(), 1.0000001: one(), "a.b": one(), "a": {"b": one(), "": one()}, "__metadata__": one(),
        None: one(), b"1": one(), (1, "1"): one(), "%i1": one(), Way.UP: one(), "tab\t": one(), "d": {True: one()},
    }  # fmt: skip

    told = names(state)

    assert len(set(told)) == len(told)
    assert "__metadata__" not in told
    assert {"1", "%i1", "a%2Eb", "a.b", "a.%_", "%n", "%25i1", "tab%09"} <= set(told)


def test_plain_keys_and_positions_stay_readable():
    assert names({"model": {"layers": [one(), {"w": one()}]}}) == ["model.layers.0", "model.layers.1.w"]
    assert names(torch.nn.Sequential(torch.nn.Linear(1, 1))) == ["0.weight", "0.bias"]
    assert names({"m": torch.nn.Linear(1, 1).state_dict()}) == ["m.weight", "m.bias"]
    assert names({"flat.key": one(), "other": one()}) == ["flat.key", "other"]
    assert names(one()) == ["%r"]


def test_overlong_names_are_cut_to_a_digest():
    told = names({"k" * 500 + end: one() for end in "ab"} | {"\u00e4" * 150: one()})

    assert len(set(told)) == 3
    assert all(len(name.encode()) <= 200 for name in told)


@given(st.text())
def test_escaping_can_be_undone(key):
    assert unescape(escape(key)) == key
    assert undotted(dotted(key)) == key
    assert "." not in escape(key)


@given(st.dictionaries(st.one_of(st.text(string.printable + "\ud800\u202e", max_size=6), st.integers()),
                       st.dictionaries(st.text(".%_i1", max_size=3), st.builds(one), max_size=3)))  # fmt: skip
def test_no_two_leaves_ever_have_one_name(state):
    told = names(state)

    assert len(set(told)) == len(told)
    assert all(name.isprintable() for name in told)
    json.dumps(told).encode()


def test_names_that_cannot_be_told_apart_are_refused():
    with pytest.raises(UnsupportedType, match=r"^%fnan: two arrays .* one name"):
        flatten({float("nan"): one(), float("-nan"): one()})


def test_select_keeps_names_and_drops_empty_containers():
    tree, entries, _, _ = stored({"a": [one(), one()], "b": {"c": one(), "d": 5}, "e": (), "f": {"g": 1}})

    part = select(tree, lambda name: name in ("a.1", "b.d", "e"))

    assert [spec.name for spec in specs(part, entries)] == ["a.1"]
    assert part == ["d", ["a", ["l", [["-"], ["a", 1]]], "b", ["d", ["d", 5]], "e", ["t", []]]]
    assert select(tree, lambda name: False) == ["d", []]


def test_rename_moves_leaves_and_refuses_what_cannot_move():
    tree, entries, _, _ = stored({"a": {"x": one(), "y": 1}, "l": [one()]})

    assert [s.name for s in specs(rename(tree, lambda n: n.replace("a.x", "b.c.x")), entries)] == ["l.0", "b.c.x"]
    assert [s.name for s in specs(rename(tree, lambda n: n.replace("l.", "m.")), entries)] == ["a.x", "m.0"]
    assert rename(tree, lambda n: n) == tree
    with pytest.raises(StructureMismatch, match=r"^a.y: rename= gives two leaves this name"):
        rename(tree, lambda n: n.replace("a.x", "a.y"))
    with pytest.raises(StructureMismatch, match=r"^l.0.z: .*l is no dict"):
        rename(tree, lambda n: n.replace("a.x", "l.0.z"))
    two = stored({"l": [one(), one()]})[0]
    with pytest.raises(StructureMismatch, match=r"^l: rename= cannot take this part to pieces"):
        rename(two, lambda n: n.replace("l.0", "m"))


def test_a_part_with_its_own_load_moves_as_a_whole_and_state_follows_its_parameters():
    model = torch.nn.Linear(2, 1)
    adam = torch.optim.Adam(model.parameters())
    model(torch.ones(2)).backward()
    adam.step()
    tree, entries, _, _ = stored({"model": model, "adam": adam, "object": Trainer({"x": 1, "y": 2})})

    def names(new_name):
        return [spec.name for spec in specs(rename(tree, new_name), entries)]

    apart = names(lambda name: name.replace("model.weight", "other.weight"))
    whole = names(lambda name: name.replace("adam.", "opt."))
    assert apart[0] == "model.bias"
    assert [name for name in apart if name.startswith("adam.state.") and name.endswith(".step")] == [
        "adam.state.other.weight.step",
        "adam.state.model.bias.step",
    ]
    assert not any(name.startswith("adam") for name in whole)
    assert "opt.state.model.weight.exp_avg" in whole
    with pytest.raises(StructureMismatch, match=r"^object: rename= cannot take this part to pieces"):
        rename(tree, lambda name: name.replace("object.x", "elsewhere"))


def test_summary_tells_parts_and_what_a_resume_would_lack():
    model = torch.nn.Linear(2, 2)
    sgd = torch.optim.SGD(model.parameters())
    tree, entries, _, _ = stored({"model": model, "twin": model.state_dict(), "sgd": sgd, "notes": {"a": 1}})

    told = summary(tree, entries)

    assert [(p.name, p.kind, p.tensors, p.nbytes) for p in told.parts] == [
        ("model", "module", 2, 24), ("twin", "module", 2, 0), ("sgd", "optimizer", 0, 0), ("notes", "data", 0, 0),
    ]  # fmt: skip
    assert told.parts[0].class_name == "torch.nn.modules.linear:Linear"
    assert told.absent == ("rng", "step")


@pytest.mark.parametrize("shape", [lambda one: one, lambda one: one.state_dict(), lambda one: {"inner": [one]}])
def test_a_scheduler_is_lacking_only_where_the_optimizer_had_one(shape):
    model = torch.nn.Linear(2, 2)
    adam = torch.optim.Adam(model.parameters())
    before, entries, _, _ = stored({"model": model, "optimizer": shape(adam)})
    torch.optim.lr_scheduler.StepLR(adam, 1)
    after, _, _, _ = stored({"model": model, "optimizer": shape(adam)})

    assert "scheduler" not in summary(before, entries).absent
    assert "scheduler" in summary(after, entries).absent


def test_an_optimizer_that_has_its_schedule_inside_lacks_none():
    tree, entries, _, _ = stored({"params": {"w": np.ones(2)}, "opt_state": ({"count": 3, "mu": np.ones(2)},)})

    assert summary(tree, entries).absent == ("rng", "step")


class Trainer:
    """An object of the caller's with the parts of a run inside."""

    def __init__(self, parts):
        self.parts = parts

    def state_dict(self):
        return self.parts

    def load_state_dict(self, state):
        self.parts = state


def run_parts():
    model = torch.nn.Linear(2, 2)
    adam = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(adam, 1)
    scaler = torch.amp.GradScaler("cpu")
    return {"net": model, "adam": adam, "plan": schedule, "amp": scaler, "generators": rng_state(), "epoch": 3}


@pytest.mark.parametrize(
    "shape",
    [
        lambda parts: {"trainer": parts},
        lambda parts: {"trainer": Trainer(parts)},
        lambda parts: [parts, {}],
        lambda parts: {k: v.state_dict() if hasattr(v, "state_dict") else v for k, v in parts.items()},
        lambda parts: {"models": [parts["net"]], "rest": {k: v for k, v in parts.items() if k != "net"}},
    ],
)
def test_a_resume_lacks_nothing_that_is_anywhere_in_the_state(shape):
    tree, entries, _, _ = stored(shape(run_parts()))

    assert summary(tree, entries).absent == ()


@pytest.mark.parametrize("optimizer", ["opt_state", "opt", "optim", "optimizer"])
def test_plain_data_is_known_by_the_name_of_its_part(optimizer):
    parts = {"params": {"w": np.ones(2)}, optimizer: ({"m": np.ones(2)},), "lr_scheduler": {"a": 1}, "step": 4}
    tree, entries, _, _ = stored({**parts, "rng": np.ones(2)})

    assert summary(tree, entries).absent == ()


def test_what_is_empty_or_none_is_lacking():
    tree, entries, _, _ = stored(
        {"model": None, "optimizer": {}, "scheduler": [], "scaler": None, "rng": 0, "epoch": 0}
    )

    assert summary(tree, entries).absent == ("model", "optimizer", "scheduler", "rng")


def test_a_part_is_known_by_its_keys_and_not_by_its_texts():
    tree, entries, _, _ = stored({"notes": {"first": "state", "second": "param_groups"}, "o": {"state": {}}})

    assert [part.kind for part in summary(tree, entries).parts] == ["data", "data"]


def test_a_typed_jax_key_is_a_random_generator():
    jax = pytest.importorskip("jax")
    tree, entries, _, _ = stored({"anything": jax.random.key(3), "other": jax.numpy.ones(3)})

    assert "rng" not in summary(tree, entries).absent


def test_plain_values_are_said_shortly_whatever_they_are():
    state = {"way": Way.UP, "sizes": {(1, 2), (3,)}, "none": None, "empty": [], "text": "x" * 200, "rate": 0.5}
    nodes = plain_values(stored({**state, "dtype": torch.bfloat16, "shape": torch.Size([2, 3]), "w": np.ones(2)})[0])

    assert {name: shorten(node) for name, node in nodes.items()} == {
        "way": f"{__name__}:Way.UP", "sizes": "[[1, 2], [3]]", "none": "None", "empty": "[]", "rate": "0.5",
        "text": f"'{'x' * 76}...", "dtype": "torch.dtype bfloat16", "shape": "torch.Size [2, 3]",
    }  # fmt: skip


def test_only_what_is_longer_than_a_line_is_cut():
    assert [len(shorten("x" * length)) for length in (77, 78, 79, 200)] == [79, 80, 80, 80]
    assert [shorten("x" * length).endswith("...") for length in (77, 78, 79, 200)] == [False, False, True, True]


def test_a_plain_value_no_save_has_written_is_said_all_the_same():
    deep = 1
    for _ in range(5000):
        deep = ["s", [deep]]

    assert [shorten(node) for node in (deep, ["zz"], ["f", "x"])] == ["?", "?", "?"]


@given(st.lists(st.text(alphabet="ab.|%\n\u00e9", max_size=4), min_size=1, max_size=4))
def test_keys_stay_as_they_are_if_each_of_them_does(keys):
    assert stay_dotted(keys) == all(dotted(key) == key and key.isascii() for key in keys)
