"""cast=True: the only way to another dtype, and it is told."""

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch

import model_checkpoint as mc
from model_checkpoint.errors import StructureMismatch


def load_cast(root, into, **options):
    told = []
    mc.load(root, into=into, cast=True, report=told.append, **options)
    return [tuple(cast) for cast in told[0].casts]


LIVE = {
    "torch": lambda: torch.zeros(3, dtype=torch.bfloat16),
    "torch fp8": lambda: torch.zeros(3, dtype=torch.float8_e4m3fn),
    "torch wide": lambda: torch.zeros(3, dtype=torch.float64),
    "torch view": lambda: torch.zeros(3, 2, dtype=torch.float16)[:, 0],
    "numpy": lambda: np.zeros(3, np.float16),
    "numpy integers": lambda: np.zeros(3, np.int8),
    "numpy big-endian": lambda: np.zeros(3, ">f8"),
    "variable": lambda: tf.Variable(np.zeros(3, np.float16)),
}
SAVED = {"numpy": lambda: np.array([1.5, -2, 3], np.float32), "torch": lambda: torch.tensor([1.5, -2, 3])}


def as_floats(array):
    return array.float().tolist() if isinstance(array, torch.Tensor) else np.asarray(array).astype(np.float64).tolist()


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("make", LIVE.values(), ids=LIVE)
@pytest.mark.parametrize("saved", SAVED.values(), ids=SAVED)
def test_live_arrays_keep_their_dtype_in_their_place(tmp_path, saved, make, atomic):
    live = make()
    into = {"w": live, "same": np.zeros(2, np.float32)}
    mc.save(tmp_path, {"w": saved(), "same": np.ones(2, np.float32)}, step=1)

    casts = load_cast(tmp_path, into, atomic=atomic)

    whole = "int" in str(live.dtype)
    assert into["w"] is live
    assert as_floats(live) == ([1, -2, 3] if whole else [1.5, -2, 3])
    assert into["same"].tolist() == [1, 1]
    assert [(name, dtype) for name, dtype, _ in casts] == [("w", "float32")]


FIXED = {"jax": lambda: jnp.zeros(3, jnp.bfloat16), "tensorflow": lambda: tf.zeros(3, tf.float16)}


@pytest.mark.parametrize("make", FIXED.values(), ids=FIXED)
def test_arrays_that_never_change_are_followed_by_one_of_their_dtype(tmp_path, make):
    into = {"w": make()}
    mc.save(tmp_path, {"w": np.array([1.5, -2, 3], np.float64)}, step=1)

    casts = load_cast(tmp_path, into)

    assert type(into["w"]) is type(make())
    assert into["w"].dtype == make().dtype
    assert as_floats(into["w"]) == [1.5, -2, 3]
    assert casts[0][:2] == ("w", "float64")


@pytest.mark.parametrize("hooked", [False, True], ids=["in place", "own load"])
def test_a_module_of_another_precision_is_filled(tmp_path, hooked):
    saved, live = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).bfloat16()
    if hooked:
        live.register_load_state_dict_post_hook(lambda module, keys: None)
    mc.save(tmp_path, {"model": saved}, step=1)

    casts = load_cast(tmp_path, {"model": live})

    assert live.weight.dtype == torch.bfloat16
    assert torch.equal(live.weight, saved.weight.bfloat16())
    assert casts == [("model.weight", "float32", "bfloat16"), ("model.bias", "float32", "bfloat16")]


def test_without_it_another_dtype_is_an_error_that_names_it(tmp_path):
    mc.save(tmp_path, {"w": np.ones(3)}, step=1)
    into = {"w": np.zeros(3, np.float32)}

    with pytest.raises(StructureMismatch, match=r"pass cast=True.*\n.*saved float64, live float32"):
        mc.load(tmp_path, into=into)
    assert into["w"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("saved", [np.ones(3, np.complex64), np.array(["a", "b", "c"]), np.ones(4)], ids=str)
def test_what_has_no_cast_stays_an_error(tmp_path, saved):
    """Half of each number, or another shape, would be lost."""
    mc.save(tmp_path, {"w": saved}, step=1)

    with pytest.raises(StructureMismatch, match=r"w: saved"):
        mc.load(tmp_path, into={"w": np.zeros(3, np.float32)}, cast=True)


def test_nothing_is_told_where_nothing_was_cast(tmp_path):
    mc.save(tmp_path, {"w": np.ones(3)}, step=1)

    assert load_cast(tmp_path, {"w": np.zeros(3)}) == []
