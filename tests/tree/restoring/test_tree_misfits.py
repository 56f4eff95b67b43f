"""Live objects that a saved state does not fit, or fits only in another form: told by name, nothing changed."""

from collections import OrderedDict
from dataclasses import dataclass, make_dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from tests.tree.carrying import fill, loaded, same, stored

from model_checkpoint.errors import ManifestInvalid, StructureMismatch, UnsupportedType
from model_checkpoint.tree import live_specs, prepare, unasked, unmet


def hooked(module):
    """A module whose load is not mere copying."""
    module.register_load_state_dict_post_hook(lambda module, keys: None)
    return module


class Pair(NamedTuple):
    left: object
    right: object


@dataclass
class Box:
    inside: object


class Odd(torch.Tensor):
    """A tensor that may hold its values anywhere."""


class Holder:
    def state_dict(self):
        return {"a": 1}

    def load_state_dict(self, state):
        self.state = state


def test_a_nested_state_reaches_a_module_that_loads_by_itself():
    live = hooked(torch.nn.Sequential(OrderedDict(layer=torch.nn.Linear(2, 1))))

    loaded({"m": {"layer": {"weight": torch.ones(1, 2), "bias": torch.full((1,), 3.0)}}}, {"m": live})

    assert live.layer.weight.tolist() == [[1, 1]]
    assert live.layer.bias.tolist() == [3]


@pytest.mark.parametrize("make", [torch.nn.Linear, lambda *sides: hooked(torch.nn.Linear(*sides))], ids=["", "hooked"])
def test_another_shape_is_refused_where_a_cast_is_wanted_too(make):
    live = make(2, 2).bfloat16()

    with pytest.raises(StructureMismatch, match=r"m\.weight: saved float32 \[3, 2\], live bfloat16 \[2, 2\]"):
        loaded({"m": torch.nn.Linear(2, 3)}, {"m": live}, cast=True)


@pytest.mark.parametrize(("saved", "live"), [(torch.ones(2), 5), (5, torch.ones(2)), (torch.ones(2), torch.zeros(2))])
def test_the_extra_state_of_a_module_may_be_an_array_on_either_side(saved, live):
    class Extra(torch.nn.Module):
        def __init__(self, extra):
            super().__init__()
            self.extra = extra

        def get_extra_state(self):
            return self.extra

        def set_extra_state(self, state):
            self.extra = state

    module = Extra(live)

    loaded({"m": Extra(saved)}, {"m": module})

    same(module.extra, saved)


def test_only_what_has_another_dtype_is_told_as_cast():
    mixed = hooked(torch.nn.Linear(2, 2))
    mixed.bias = torch.nn.Parameter(mixed.bias.detach().double())

    tree, entries, blobs, _ = stored({"m": torch.nn.Linear(2, 2)})
    restore = prepare(tree, entries, into={"m": mixed}, cast=True)

    assert restore.casts == (("m.bias", "float32", "float64"),)
    fill(restore, blobs)
    assert mixed.bias.dtype == torch.float64


@pytest.mark.parametrize("saved", [5, [1, 2], np.ones(2)], ids=["value", "list", "array"])
@pytest.mark.parametrize("make", [torch.nn.Linear, lambda *sides: hooked(torch.nn.Linear(*sides))], ids=["", "hooked"])
def test_what_is_no_state_dict_fills_no_module(saved, make):
    with pytest.raises(StructureMismatch, match=r"m: live it is a Linear, saved was no state_dict"):
        loaded({"m": saved}, {"m": make(2, 2)})


def test_torch_objects_take_no_arrays_of_another_framework():
    module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(module.parameters(), momentum=0.5)
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()

    with pytest.raises(StructureMismatch, match=r"m: framework= would give it 2 arrays that are no torch tensors"):
        loaded({"m": module}, {"m": hooked(torch.nn.Linear(2, 2))}, framework="numpy")
    with pytest.raises(StructureMismatch, match=r"o: framework= would give it 2 arrays that are no torch tensors"):
        loaded({"o": optimizer}, {"o": torch.optim.SGD(module.parameters(), momentum=0.5)}, framework="numpy")
    square = torch.eye(2)
    with pytest.raises(StructureMismatch, match=r"m: framework= would give it 3 arrays"):  # two of them views of one
        loaded(
            {"m": {"weight": square.t(), "bias": square[0], "more": square}},
            {"m": hooked(torch.nn.Linear(2, 2))},
            framework="numpy",
        )
    live = hooked(torch.nn.Linear(2, 2))
    loaded({"m": {"weight": square.t(), "bias": square[0]}, "more": square}, {"m": live})
    assert live.weight.tolist() == square.t().tolist()


def test_a_live_tensor_that_cannot_say_where_its_values_are_is_refused():
    live = {"w": torch.zeros(2).as_subclass(Odd)}

    with pytest.raises(StructureMismatch, match=r"w: cannot save the tensor subclass .*Odd"):
        loaded({"w": torch.ones(2)}, live)
    with pytest.raises(StructureMismatch, match=r"^w: cannot save the tensor subclass .*Odd"):
        live_specs(live)


def test_a_live_tensor_without_memory_is_refused():
    live = {"w": torch.zeros(2, device="meta")}

    with pytest.raises(StructureMismatch, match=r"w: a meta tensor has no memory"):
        loaded({"w": torch.ones(2)}, live)
    with pytest.raises(StructureMismatch, match=r"^w: a meta tensor has no memory"):
        live_specs(live)


def test_what_cannot_be_built_for_an_open_place_is_refused_with_its_cure():
    ghost = make_dataclass("Ghost", ["a"], namespace={"__module__": "no_such_module"})

    with pytest.raises(StructureMismatch, match=r"x: class no_such_module:Ghost: not at hand"):
        loaded({"x": ghost(1)}, {"x": None})


def test_dotted_keys_of_a_live_dict_take_what_was_saved_nested():
    live = {"a.b": np.zeros(2), "a.c": np.zeros(1)}
    first = live["a.b"]

    loaded({"a": {"b": np.ones(2), "c": np.full(1, 5.0)}}, live)

    assert live["a.b"] is first
    assert (live["a.b"].tolist(), live["a.c"].tolist()) == ([1, 1], [5])


@pytest.mark.parametrize("kind", [list, tuple])
def test_only_plain_items_may_be_of_another_number(kind):
    with pytest.raises(StructureMismatch, match=r"x: saved with 3 items, live it has 2"):
        loaded({"x": kind([1, 2, 3])}, {"x": kind([np.zeros(1), 0])})

    assert loaded({"x": kind([1, 2, 3])}, {"x": kind([None, 0])})["x"] == kind([1, 2, 3])
    assert loaded({"x": kind([])}, {"x": kind([b"a"])})["x"] == kind([])


def test_a_live_list_that_grows_stays_the_same_list():
    live = {"x": [0, 1.5, "a", True, 2j, None, b""]}
    same_list = live["x"]

    loaded({"x": [7]}, live)

    assert live["x"] is same_list
    assert same_list == [7]


def test_a_tuple_whose_items_all_stay_stays_itself():
    live = {"x": (np.zeros(2), np.zeros(1))}
    before = live["x"]

    loaded({"x": (np.ones(2), np.ones(1))}, live)

    assert live["x"] is before
    assert before[0].tolist() == [1, 1]


def test_a_dataclass_of_other_fields_is_refused():
    other = make_dataclass("Other", ["outside"])

    with pytest.raises(StructureMismatch, match=r"x: saved with fields inside, Other has outside"):
        loaded({"x": Box(1)}, {"x": other(2)})


@pytest.mark.parametrize(
    ("saved", "word"),
    [
        ({"a": 1}, "a dict"), (OrderedDict(a=1), "an OrderedDict"), ((1, 2), "a tuple"), (Pair(1, 2), "a namedtuple"),
        (Box(1), "a dataclass"), (Holder(), r"an object \(.*:Holder\)"), (3, "a plain value"), (None, "a plain value"),
        (range(3), "a plain value"),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)  # fmt: skip
def test_what_was_saved_in_place_of_a_list_is_told(saved, word):
    with pytest.raises(StructureMismatch, match=rf"x: live it is a list, saved was {word}"):
        loaded({"x": saved}, {"x": [1, 2]})


@pytest.mark.parametrize(("live", "word"), [({"a": 1}, "dict"), ((1, 2), "tuple"), (Pair(1, 2), "Pair")])
def test_a_list_fills_no_other_container(live, word):
    with pytest.raises(StructureMismatch, match=rf"x: live it is a {word}, saved was a list"):
        loaded({"x": [1, 2]}, {"x": live})


def test_an_array_fills_no_plain_value_and_no_object():
    with pytest.raises(StructureMismatch, match=r"x: saved as an array, live it is a int"):
        loaded({"x": np.ones(2)}, {"x": 3})
    with pytest.raises(StructureMismatch, match=r"x: saved as an array, live it is a Holder"):
        loaded({"x": np.ones(2)}, {"x": Holder()})
    assert loaded({"x": b"a" * 5000}, {"x": b""})["x"] == b"a" * 5000  # long bytes are stored as an array


def test_a_generator_takes_only_the_state_of_its_kind():
    with pytest.raises(StructureMismatch, match=r"g: live it is a Generator, saved was a value of a codec"):
        loaded({"g": np.random.RandomState(1)}, {"g": np.random.default_rng(1)})
    with pytest.raises(StructureMismatch, match=r"g: live it is a Generator, saved was a plain value"):
        loaded({"g": 5}, {"g": np.random.default_rng(1)})


def test_a_scheduler_takes_only_the_state_of_its_class():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    step, live = (torch.optim.lr_scheduler.StepLR(optimizer, size) for size in (1, 2))
    other = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    with pytest.raises(StructureMismatch, match=r"s: saved from .*:StepLR, live it is .*:ExponentialLR"):
        loaded({"s": step}, {"s": other})
    loaded({"s": step}, {"s": live})
    assert live.step_size == 1
    loaded({"s": step.state_dict()}, {"s": live})  # of a bare dict nobody knows the class


@pytest.mark.parametrize("node", [["a", 9], ["a", "0"], ["v", 0, "numpy", "float32", [99], None, 0, "", 0]], ids=str)
def test_forged_arrays_are_refused_by_name_where_live_ones_wait(node):
    _, entries, _, _ = stored({"w": np.ones(4, np.float32)})

    with pytest.raises(ManifestInvalid, match=r"^w: tree: .*is no node"):
        prepare(["d", ["w", node]], entries, into={"w": np.zeros(4, np.float32)})


def test_an_empty_array_that_is_filled_at_the_end_stays():
    live = {"w": torch.zeros(0, 2), "n": np.zeros((2, 0))}
    before = live["w"]

    loaded({"w": torch.zeros(0, 2), "n": np.zeros((2, 0))}, live, atomic=True)

    assert live["w"] is before


def test_names_of_live_arrays_are_told_only_of_those_that_take_bytes_directly():
    tree, entries, _, _ = stored({"w": np.ones(3), "t": np.ones((2, 2))})
    live = {"w": np.zeros(3), "t": np.zeros((2, 2)).T}

    restore = prepare(tree, entries, into=live)

    names = {entries[index].name: restore.live_names(index) for index in restore.needed}
    assert names == {"w": ["w"], "t": []}
    assert prepare(tree, entries).live_names(0) == []


GROUPS = ["l", [["d", ["params", ["l", [0]]]], ["d", ["params", ["l", [1]]]]]]


@pytest.mark.parametrize(
    "groups",
    [
        ["l", [5, ["d", ["params", ["l", [0, 1]]]]]], ["l", [["d", ["params", 5]]]],
        ["l", [["d", ["params", ["t", [0, 1]]]]]],
        ["l", [["d", ["params", ["l", [1, 0]]]]]], ["l", [["d", ["params", ["l", [0, 2]]]]]], ["t", []], 5,
    ],
    ids=str,
)  # fmt: skip
def test_groups_that_no_optimizer_has_are_refused(groups):
    live = torch.optim.SGD(torch.nn.Linear(2, 2).parameters())
    tree = ["d", ["o", ["m", "optimizer", "x:y", ["d", ["state", ["d", []], "param_groups", groups]], []]]]

    with pytest.raises(StructureMismatch, match=r"o: saved is no whole optimizer state"):
        prepare(tree, [], into={"o": live})


def test_an_optimizer_node_must_know_as_many_parameters_as_its_groups():
    live = torch.optim.SGD([{"params": [torch.nn.Parameter(torch.zeros(1))]} for _ in range(2)])
    inner = ["d", ["state", ["d", []], "param_groups", GROUPS]]

    with pytest.raises(StructureMismatch, match=r"o: saved is no whole optimizer state"):
        prepare(["d", ["o", ["m", "optimizer", "x:y", inner, [["a", [1]]]]]], [], into={"o": live})


def two_groups(*, turned=False):
    module = torch.nn.Linear(2, 2)
    both = [module.weight, module.bias]
    return {"m": module, "o": torch.optim.SGD([{"params": [one]} for one in (both[::-1] if turned else both)])}


def test_parameters_that_moved_to_another_group_are_refused():
    with pytest.raises(StructureMismatch, match=r"o: its parameters are named or grouped otherwise.*: groups"):
        loaded(two_groups(), two_groups(turned=True))


def test_an_optimizer_of_another_class_with_the_same_settings_is_filled():
    module = torch.nn.Linear(2, 2)
    adam = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 2)).sum().backward()
    adam.step()
    live = torch.optim.AdamW(module.parameters())

    loaded({"m": module, "o": adam}, {"m": module, "o": live})

    same(adam.state_dict()["state"], live.state_dict()["state"])


def test_the_hooks_of_sharding_do_not_hinder_direct_reads():
    def shown(module, *args):
        """As FSDP2 has one."""

    shown.__module__ = "torch.distributed.fsdp._fully_shard._fsdp_state"
    tree, entries, _, _ = stored({"m": torch.nn.Linear(2, 2)})
    live, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    live.register_state_dict_pre_hook(partial(shown))
    other.register_state_dict_pre_hook(partial(lambda module, *args: None))

    restore, own = (prepare(tree, entries, into={"m": one}) for one in (live, other))

    assert [restore.target(index).live for index in restore.needed] == [True, True]
    assert [own.target(index).live for index in own.needed] == [False, False]


# --- what live objects expect ----------------------------------------------------------------------------------------


def test_live_names_are_those_of_a_save():
    """Dots in keys stay only where every value is an array."""
    state = {
        "only": {"a.b": np.ones(1), "c": np.ones(1)}, "mixed": {"a.b": np.ones(1), "n": 3}, "plain": {"a%": np.ones(1)},
        "pair": Pair(np.ones(1), 2), "torch": torch.nn.Linear(1, 1).state_dict(), "none": {"%a": torch.ones(1)},
        "keys": {(1, "a"): np.ones(1), None: np.ones(1), 2.5: np.ones(1)}, "deep": OrderedDict({"x.y": np.ones(1)}),
    }  # fmt: skip
    _, entries, _, _ = stored(state)

    assert [spec.name for spec in live_specs(state).specs] == [entry.name for entry in entries]


def test_a_single_live_array_has_the_name_of_the_whole_state():
    live = np.zeros(3)
    tree, entries, blobs, _ = stored(np.arange(3.0))

    assert [spec.name for spec in live_specs(live).specs] == [entries[0].name]
    assert fill(prepare(tree, entries, into=live), blobs) is live
    assert live.tolist() == [0, 1, 2]


def test_bottomless_live_objects_are_refused():
    deep = []
    for _ in range(200):
        deep = [deep]

    with pytest.raises(StructureMismatch, match=r"the live objects are nested deeper than 120 containers"):
        live_specs({"x": deep})
    shallow = None
    for _ in range(119):
        shallow = [shallow]
    assert len(live_specs({"x": shallow}).open_prefixes) == 2


def test_a_live_key_that_no_save_writes_is_refused():
    with pytest.raises(UnsupportedType, match=r"^into: a dict key of type object cannot be saved"):
        live_specs({"x": {object(): np.ones(1)}})


def test_saved_values_without_a_place_are_told_and_those_in_containers_are_not():
    live = {"opt": {"lr": 0.1, "w": np.zeros(1)}, "any": None, "m": torch.nn.Linear(1, 1)}

    assert unasked(["opt", "opt.lr", "opt.more", "opt.w", "opt.w.x", "any.thing", "m.extra", "m", "z"], live) == [
        "opt.more", "opt.w.x", "m.extra", "z",
    ]  # fmt: skip
    assert unasked(["a", "b.c"], Holder()) == []
    assert unasked(["a", "b.c"], 3) == []


def test_what_a_selection_left_out_is_not_met():
    assert unmet(["l", [1, ["-"]]], [0, 0.5]) == []  # a list of plain values is replaced as a whole
    assert unmet(["d", ["x", ["t", [["-"], ["a", 0]]]]], {"x": (0.5, np.zeros(1))}) == ["x.0"]
    assert unmet(["d", ["x", ["d", ["a", 1]]]], {"x": {"a": 0, "b": {"c": 1}}, "y": Holder()}) == ["x.b.c", "y"]
