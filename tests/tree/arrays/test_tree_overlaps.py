"""Which arrays share bytes, which may be shown how often, and which tensors can lie over a NumPy array."""

import ml_dtypes
import numpy as np
import pytest
import torch
from tests.tree.carrying import stored

from model_checkpoint.errors import LimitExceeded, StructureMismatch
from model_checkpoint.tree import prepare
from model_checkpoint.tree.arrays.aliasing import overlapping
from model_checkpoint.tree.arrays.numpy_arrays import find, host_bytes
from model_checkpoint.tree.arrays.torch_arrays import from_numpy
from model_checkpoint.tree.restoring.build import _require_room

BASE = np.arange(20.0)


@pytest.mark.parametrize(
    ("spans", "groups"),
    [
        ([(0, 3), (2, 5), (4, 7)], [[0, 1, 2]]),  # the first and the last only through the one between them
        ([(4, 7), (0, 3), (2, 5), (6, 8)], [[0, 1, 2, 3]]),
        ([(0, 9), (1, 2), (3, 4), (8, 12)], [[0, 1, 2, 3]]),
        ([(0, 3), (10, 13), (2, 4), (12, 14)], [[0, 2], [1, 3]]),
        ([(0, 3), (3, 6)], []),
        ([(0, 6), (2, 2)], []),  # no bytes, no sharing
        ([(0, 6), (0, 6)], [[0, 1]]),
    ],
)
def test_arrays_that_share_bytes_with_any_of_a_group_belong_to_it(spans, groups):
    assert overlapping([find(BASE[start:stop]) for start, stop in spans]) == groups


@pytest.mark.parametrize(
    ("array", "dtype", "shares"),
    [
        (np.arange(4, dtype=np.float32), "float32", True),
        (np.arange(4, dtype=">f4"), ">float32", False),
        (np.arange(4, dtype=np.float32)[::-1], "float32", False),
        (np.arange(4, dtype=np.float32)[::2], "float32", True),
        (np.arange(4).astype(ml_dtypes.bfloat16), "bfloat16", True),
        (np.arange(4).astype(ml_dtypes.float8_e4m3fn), "float8_e4m3fn", True),
        (np.arange(4, dtype=np.float16).view(np.int32), "complex32", True),
    ],
)
def test_a_tensor_lies_over_a_numpy_array_where_torch_can_say_how(array, dtype, shares):
    values = array.view(np.float16) if dtype == "complex32" else array

    tensor = from_numpy(array, dtype)

    assert str(tensor.dtype) == f"torch.{dtype.removeprefix('>')}"
    shown = torch.view_as_real(tensor).flatten() if dtype == "complex32" else tensor
    assert shown.float().tolist() == values.astype(np.float32).tolist()
    assert (tensor.untyped_storage().data_ptr() == array.ctypes.data) == shares


def test_a_tensor_never_lies_over_memory_that_must_not_change():
    array = np.arange(4.0)
    array.flags.writeable = False

    from_numpy(array, "float64").zero_()

    assert array.tolist() == [0, 1, 2, 3]


def test_an_array_without_elements_has_no_bytes():
    assert bytes(host_bytes(np.empty((0, 3)))) == b""
    assert bytes(host_bytes(np.arange(2, dtype=np.uint8))) == b"\x00\x01"


def test_a_view_is_copied_as_often_as_there_is_memory_for():
    for copied in (True, False):
        _require_room(1000, 10, copied=copied)
    _require_room(1 << 60, 10, copied=False)  # never in memory as a whole
    with pytest.raises(LimitExceeded, match=r"a view of 1152921504606846976 bytes into 10 stored ones"):
        _require_room(1 << 60, 10, copied=True)


def test_four_of_those_that_share_memory_are_named():
    tree, entries, _, _ = stored({name: np.arange(3.0) + i for i, name in enumerate("abcde")})

    with pytest.raises(StructureMismatch, match=r"live these share memory, saved they were apart: a, b, c, d(?!, )"):
        prepare(tree, entries, into=dict.fromkeys("abcde", np.zeros(3)))
