"""What is saved of a user's object, what a load fills of it, and how it gets the result."""

from collections import OrderedDict, UserDict
from types import MappingProxyType

import numpy as np
import pytest

from model_checkpoint.distributed import DistributedCheckpoint, LocalCoordinator, SaveOptions, StateDict
from model_checkpoint.distributed.moving.live_parts import LivePart, gives_itself, state_to_save
from model_checkpoint.errors import OptionInvalid, UnsupportedType


def made(*methods):
    """An object of a class that has methods of these names."""
    return type("Owner", (), dict.fromkeys(methods, lambda self, *state: {"w": 1}))()


@pytest.mark.parametrize(
    ("methods", "gives"),
    [
        (["get_state_dict", "load_state_dict"], True),
        (["get_state_dict"], False),
        (["load_state_dict"], False),
        (["state_dict", "load_state_dict"], False),
        (["get_state_dict", "load_state_dict", "state_dict"], False),
        ([], False),
    ],
)
def test_an_object_is_asked_for_its_state_if_it_gives_and_takes_it_and_the_engine_knows_no_better(methods, gives):
    owner = made(*methods)

    assert gives_itself(owner) is gives
    assert (state_to_save(owner, "model") is owner) is not gives
    assert (LivePart.of("model", owner, ["d", []]).filled is owner) is not gives


class Stateful:
    """Gives a state and keeps what it is handed."""

    def __init__(self, state):
        self.given, self.handed = state, []

    def get_state_dict(self):
        return self.given

    def load_state_dict(self, state):
        self.handed.append(state)


class Known(UserDict):
    """A mapping that the engine knows how to ask."""

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def test_a_state_is_made_of_ordinary_dicts_whatever_mappings_it_came_as():
    known, inner = Known(a=1), np.zeros(1)
    state = StateDict(a=StateDict(b=inner), c={"d": StateDict(e=1)}, f=MappingProxyType({"g": 1}), h=known, i=[1])

    plain = state_to_save(Stateful(state), "model")

    assert type(plain) is type(plain["a"]) is type(plain["c"]) is type(plain["c"]["d"]) is type(plain["f"]) is dict
    assert plain["a"]["b"] is inner
    assert plain["h"] is known
    assert (plain["c"], plain["f"], plain["i"]) == ({"d": {"e": 1}}, {"g": 1}, [1])


def test_what_gives_no_mapping_is_refused():
    with pytest.raises(UnsupportedType, match=r"^model: get_state_dict\(\) of Stateful gives list, expected a"):
        state_to_save(Stateful([1]), "model")


@pytest.mark.parametrize("tree", [["d", ["optimizer", ["o", ["lr", 1, "step", 2]]]], ["d", ["model", ["d", []]]]])
def test_what_grows_also_takes_what_it_does_not_have_yet(tree):
    owner = Stateful(StateDict(lr=0.5))
    grown = {"lr": 0.5, "step": None} if "optimizer" in tree[1] else {"lr": 0.5}

    assert LivePart.of("optimizer", owner, tree, grows=True).filled == grown
    assert LivePart.of("optimizer", owner, tree).filled == {"lr": 0.5}


def test_who_gave_its_state_is_handed_the_new_one_and_nobody_else():
    owner = Stateful({"w": 1})
    part = LivePart.of("model", owner, ["d", []])
    part.filled["w"] = 2

    part.hand_over()

    assert owner.handed == [{"w": 2}]
    assert type(owner.handed[0]) is StateDict
    other = Stateful({})
    LivePart("model", other, other).hand_over()
    assert other.handed == []


def test_the_state_of_a_mapping_is_itself_and_of_others_what_they_give():
    plain = {"w": 1}
    assert LivePart("model", plain, plain).state() == StateDict(w=1)
    assert type(LivePart("model", OrderedDict(w=1), plain).state()) is StateDict

    class Module:
        def __init__(self, state):
            self.state = state

        def state_dict(self):
            return self.state

        def load_state_dict(self, state):
            self.state = state

    assert LivePart("model", Module({"w": 2}), None).state() == StateDict(w=2)
    assert LivePart("model", Module([1, 2]), None).state() == StateDict(model=[1, 2])


@pytest.mark.parametrize("prefix", ["", " ", None, 3])
def test_a_deletion_needs_the_name_of_a_checkpoint(tmp_path, prefix):
    checkpoint = DistributedCheckpoint(LocalCoordinator(), tmp_path)
    checkpoint.save_model_only({"w": 1}, SaveOptions(checkpoint_prefix="kept"))

    with pytest.raises(OptionInvalid, match=r"^checkpoint_prefix=.*: expected the name of a checkpoint"):
        checkpoint.delete_checkpoint(prefix)
    assert [info.prefix for info in checkpoint.list_checkpoints()] == ["kept"]
