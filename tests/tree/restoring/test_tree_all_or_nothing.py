"""Loads that fail late: whatever can be refused is refused first, and what was changed is said."""

import numpy as np
import pytest
import torch
from tests.ground.live_modules import Counting
from tests.tree.carrying import fill, stored

from model_checkpoint.errors import ManifestInvalid, PartlyLoaded, StructureMismatch, UnsupportedType
from model_checkpoint.tree import prepare, unmet
from model_checkpoint.tree.values.codecs import register_codec


class Unit:
    """Something only a codec of the caller's can save; decoding fails on demand."""

    broken = False

    def __init__(self, text):
        self.text = text


def read_unit(text):
    if Unit.broken:
        raise RuntimeError(f"no such unit {text}")
    return Unit(text)


register_codec(Unit, lambda unit: unit.text, read_unit)


@pytest.fixture
def broken(monkeypatch):
    monkeypatch.setattr(Unit, "broken", True)


class Stubborn:
    """Takes no state at all."""

    def state_dict(self):
        return {"value": 1}

    def load_state_dict(self, state):
        raise RuntimeError("never")


class Counter:
    """An ordinary object with a state."""

    def __init__(self, value=0):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


def loaded(state, into, **options):
    tree, entries, blobs, _ = stored(state)
    return fill(prepare(tree, entries, into=into, **options), blobs)


def test_a_decode_that_fails_changes_nothing_when_atomic(broken):
    live = {"w": torch.zeros(2), "count": Counter(), "n": 1, "unit": None}

    with pytest.raises(
        ManifestInvalid, match=r"^unit: decode of the codec .*Unit failed \(RuntimeError: no such unit m"
    ):
        loaded({"w": torch.ones(2), "count": Counter(4), "n": 5, "unit": Unit("m")}, live, atomic=True)

    assert (live["w"].tolist(), live["count"].value, live["n"], live["unit"]) == ([0, 0], 0, 1, None)


def test_a_decode_that_fails_says_which_arrays_were_replaced_and_changes_nothing_else(broken):
    live = {"w": torch.zeros(2), "count": Counter(), "n": 1, "unit": None}

    with pytest.raises(PartlyLoaded, match=r"^unit: decode of the codec .* 1 arrays were replaced") as caught:
        loaded({"w": torch.ones(2), "count": Counter(4), "n": 5, "unit": Unit("m")}, live)

    assert caught.value.replaced == ("w",)
    assert (live["count"].value, live["n"], live["unit"]) == (0, 1, None)


def test_a_decode_that_fails_names_its_place_in_the_tree(broken):
    tree, entries, blobs, _ = stored({"layers": [{"unit": Unit("m")}]})

    with pytest.raises(ManifestInvalid, match=r"^layers\.0\.unit: decode .* Register a decode"):
        fill(prepare(tree, entries), blobs)


def test_one_object_that_takes_nothing_back_does_not_keep_the_others_from_going_back():
    live = {"w": np.zeros(2), "first": Counter(), "last": Stubborn()}

    with pytest.raises(PartlyLoaded, match=r"^last: load_state_dict failed \(never\).*earlier state of last") as caught:
        loaded({"w": np.ones(2), "first": Counter(4), "last": Stubborn()}, live, atomic=True)

    assert caught.value.partial == ("last",)
    assert (live["first"].value, live["w"].tolist()) == (0, [0, 0])


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("side", [2, 4])
def test_an_expanded_live_tensor_is_refused_before_anything_changes(atomic, side):
    live = {"a": torch.zeros(3), "b": torch.zeros(1).expand(side)}

    with pytest.raises(StructureMismatch, match=r"b: elements of the live array share memory"):
        loaded({"a": torch.ones(3), "b": torch.ones(side)}, live, atomic=atomic)

    assert live["a"].tolist() == [0, 0, 0]


def test_an_expanded_tensor_without_elements_or_with_one_is_filled():
    live = {"a": torch.zeros(1, 3).expand(1, 3), "b": torch.zeros(1, 0).expand(4, 0)}

    loaded({"a": torch.ones(1, 3), "b": torch.ones(4, 0)}, live)

    assert live["a"].tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn])
def test_inference_tensors_are_filled(atomic, dtype):
    with torch.inference_mode():
        whole, strided = torch.zeros(3).to(dtype), torch.zeros(8).to(dtype)[::2]

    loaded({"a": torch.ones(3).to(dtype), "b": torch.ones(4).to(dtype)}, {"a": whole, "b": strided}, atomic=atomic)

    assert whole.float().tolist() == [1, 1, 1]
    assert strided.float().tolist() == [1, 1, 1, 1]


def test_a_tensorflow_variable_keeps_its_value_when_an_object_fails():
    tf = pytest.importorskip("tensorflow")
    live = {"v": tf.Variable([0.0, 0.0]), "last": Stubborn()}

    with pytest.raises(PartlyLoaded, match=r"^last: load_state_dict failed"):
        loaded({"v": tf.Variable([1.0, 2.0]), "last": Stubborn()}, live, atomic=True)
    assert live["v"].numpy().tolist() == [0, 0]

    same = live["v"]
    loaded({"v": tf.Variable([1.0, 2.0])}, live, atomic=True)
    assert live["v"] is same
    assert same.numpy().tolist() == [1, 2]


def test_a_jax_array_keeps_its_place_when_a_later_decode_fails(broken):
    jnp = pytest.importorskip("jax.numpy")
    live = ({"v": jnp.zeros(2), "unit": None}, jnp.zeros(1))

    with pytest.raises(ManifestInvalid, match=r"^0\.unit: decode"):
        loaded(({"v": jnp.ones(2), "unit": Unit("m")}, jnp.ones(1)), live, atomic=True)

    assert live[0]["v"].tolist() == [0, 0]


class Remembering(torch.optim.Optimizer):
    """Keeps history in lists and tuples, as LBFGS does."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})


def test_full_precision_history_in_lists_stays_full():
    old = Remembering([torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))])
    history = {"dirs": [torch.randn(3), torch.randn(3)], "pair": (torch.randn(3), 4), "deep": {"in": [torch.randn(3)]}}
    old.state[old.param_groups[0]["params"][0]] = history
    new = Remembering([torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))])

    loaded({"optimizer": old}, {"optimizer": new})

    (mine,) = new.state.values()
    assert [d.dtype for d in mine["dirs"]] == [torch.float32, torch.float32]
    assert all(map(torch.equal, mine["dirs"], history["dirs"]))
    assert torch.equal(mine["pair"][0], history["pair"][0])
    assert mine["pair"][1] == 4
    assert torch.equal(mine["deep"]["in"][0], history["deep"]["in"][0])


def test_extra_state_the_checkpoint_has_nothing_for_is_missing():
    plain, counting = stored({"m": {"in": torch.nn.Linear(2, 2)}})[0], stored({"m": {"in": Counting(2, 2)}})[0]

    assert unmet(plain, {"m": {"in": Counting(2, 2)}}) == ["m.in._extra_state"]
    assert unmet(counting, {"m": {"in": Counting(2, 2)}}) == []
    assert unmet(plain, torch.nn.Sequential(torch.nn.Linear(2, 2))) == []


def test_a_set_that_holds_what_no_set_can_give_back_is_refused_as_a_set():
    with pytest.raises(UnsupportedType, match=r"^s: a set member of type Tensor cannot be saved"):
        stored({"s": {torch.ones(1)}})
