"""The errors and the front door of the room."""

import copy
import importlib
import json
import pickle
import subprocess
import sys

import pytest

import model_checkpoint.recompute as room
from model_checkpoint.errors import CheckpointException
from model_checkpoint.recompute import errors

EVERY = [cls for cls in vars(errors).values() if isinstance(cls, type) and cls.__module__ == errors.__name__]


@pytest.mark.parametrize("cls", EVERY, ids=lambda cls: cls.__name__)
def test_every_error_is_made_of_its_message_alone_and_survives_pickling(cls):
    error = cls("layer 'a': broken. Next step.")
    error.extra = 7

    twin = pickle.loads(pickle.dumps(error))

    assert issubclass(cls, CheckpointException)
    assert type(twin) is cls
    assert str(twin) == "layer 'a': broken. Next step."
    assert vars(twin) == vars(error)


@pytest.mark.parametrize("clone", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_their_fields_survive_too(clone):
    failed = clone(errors.RecomputationException("failed", OSError("gone"), layer_id="a"))
    cycle = clone(errors.DependencyCycle("circle", cycle=["a", "b", "a"]))

    assert failed.layer_id == "a"
    assert isinstance(failed.inner_exception, OSError)
    assert (cycle.cycle, cycle.layer_id) == (("a", "b", "a"), "a")


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.LayerIdInvalid, ValueError),
        (errors.LayerExists, ValueError),
        (errors.ActivationInvalid, ValueError),
        (errors.SettingInvalid, ValueError),
        (errors.LayerNotFound, KeyError),
        (errors.ClosedError, RuntimeError),
        (errors.RecomputationException, RuntimeError),
        (errors.DependencyCycle, RuntimeError),
    ],
)
def test_errors_are_the_builtins_callers_expect(cls, builtin):
    assert issubclass(cls, builtin)


def test_every_public_name_is_of_this_room_and_documented():
    for name in room.__all__:
        value = getattr(room, name)
        assert getattr(importlib.import_module(value.__module__), name) is value
        assert value.__module__.startswith("model_checkpoint.recompute.")
        assert value.__doc__, name

    assert dir(room) == sorted(room.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="attribute Checkpoints"):
        _ = room.Checkpoints


def test_the_classes_work_without_any_framework():
    """Neither importing nor using them on bytes may load torch or NumPy."""
    probe = """
import json, sys
from model_checkpoint.recompute import CheckpointConfig, CheckpointManager, DiskStore
with CheckpointManager(CheckpointConfig(use_async_recomputation=True), store=DiskStore()) as manager:
    manager.register_checkpoint("a", b"abc")
    manager.engine.register_recompute_function("b", lambda: manager.retrieve_or_recompute("a") + b"d")
    found = manager.retrieve_or_recompute("b").decode()
print(json.dumps([found, [m for m in ("torch", "numpy", "jax", "tensorflow") if m in sys.modules]]))
"""
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=120)

    assert json.loads(out.stdout) == ["abcd", []]
