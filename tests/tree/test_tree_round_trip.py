"""Whatever goes in comes out: types, order, bits."""

import collections
import datetime as dt
import enum
import random
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tree.carrying import fill, same, stored, trip

from model_checkpoint.tree import prepare


class Color(enum.Enum):
    RED = 1
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 3


class Bits(enum.Flag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: object
    y: object


@dataclass
class Config:
    lr: object
    extra: object = field(default=None)


atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**200), max_value=2**200),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.characters(categories=["Cs"]),
    st.binary(max_size=20),
    st.binary(min_size=4097, max_size=5000),
    st.builds(bytearray, st.binary(max_size=9)),
    st.datetimes(timezones=st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=2), "CEST")])),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.sampled_from([Color.RED, Color.BLUE, Level.LOW, Bits.A | Bits.B, torch.float8_e5m2, torch.Size([2, 3])]),
    st.sampled_from([np.float32(1.5), np.int8(-3), np.bool_(True), np.datetime64("2020-01-01", "ns"), np.str_("x")]),
)
dtypes = st.sampled_from(["f4", ">f8", "i2", "?", "c16", "M8[us]", "U3", "S2", [("a", "<f4"), ("b", ">i2", (2,))]])
numpy_arrays = st.builds(
    lambda dtype, shape, seed: np.frombuffer(
        np.random.default_rng(seed).integers(0, 2, int(np.prod(shape)) * np.dtype(dtype).itemsize, np.uint8).tobytes()
        or b"", np.uint8
    ).view(dtype).reshape(shape).copy() if np.prod(shape) else np.empty(shape, dtype),
    dtypes, st.sampled_from([(), (3,), (2, 3), (0, 4), (1, 2, 2)]), st.integers(0, 99),
)  # fmt: skip
tensors = st.builds(
    lambda dtype, shape, turn: (
        torch.arange(int(np.prod(shape))).reshape(shape).to(dtype).permute(tuple(turn(len(shape))))
    ),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex64]),
    st.sampled_from([(), (3,), (2, 3), (0, 4), (3, 2, 2)]),
    st.sampled_from([lambda n: range(n), lambda n: reversed(range(n))]),
)
keys = st.one_of(
    st.text(max_size=5), st.integers(), st.none(), st.booleans(), st.binary(max_size=4),
    st.floats(allow_nan=False), st.sampled_from([Color.RED, (1, "a"), ("x", (None, 2.5))]),
)  # fmt: skip


def containers(inner):
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(st.text(max_size=3), inner, max_size=3).map(collections.OrderedDict),
        st.builds(Point, inner, inner),
        st.builds(Config, inner, inner),
        st.frozensets(st.one_of(st.integers(), st.text(max_size=3)), max_size=3),
        st.sets(st.binary(max_size=3), max_size=3),
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.recursive(st.one_of(atoms, numpy_arrays, tensors), containers, max_leaves=12), st.integers(0, 9))
def test_any_nested_state_comes_back_exactly(state, seed):
    tree, entries, blobs, flat = stored(state, random.Random(seed))

    back = fill(prepare(tree, entries), blobs)

    same(state, back)
    assert len({leaf.name for leaf in flat.leaves}) == len(flat.leaves)
    assert all(0 < len(leaf.name.encode()) <= 200 for leaf in flat.leaves)


@pytest.mark.parametrize(
    "value",
    [
        float("inf"), -0.0, float("nan"), 2**70, -(2**70), "\ud800 alone", b"\x00" * 4096, b"y" * 4097,
        bytearray(b"z" * 9000), dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        dt.time(3, 4, tzinfo=dt.UTC), dt.timezone(dt.timedelta(seconds=-90)), {}, [], (), set(), frozenset(),
        collections.Counter("abca"), collections.deque([1, 2], maxlen=3), PurePosixPath("a/b"), np.dtype(">f4"),
        torch.device("cuda", 1), torch.float4_e2m1fn_x2, torch.Size([]), np.float16("nan"), np.complex64(1j),
        np.void(b"abc"), {1: "int", "1": "str", None: 0, 1.5: 1, (1, "1"): 2, b"1": 3},
        pytest.param({frozenset({1, 2}), "a"}, id="set"),  # its own text changes from process to process
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_value_comes_back_exactly(value):
    same(value, trip(value))
    same({"a": [value]}, trip({"a": [value]}))


def test_true_and_one_stay_what_they_are():
    same([True, 1, 1.0, False, 0], trip([True, 1, 1.0, False, 0]))


def test_torch_state_dict_metadata_survives():
    state = torch.nn.BatchNorm1d(2).state_dict()

    back = trip(state)

    assert type(back) is collections.OrderedDict
    assert back._metadata == state._metadata
    same(dict(state), dict(back))


def test_parameters_and_gradient_flags_come_back_as_torch_save_keeps_them():
    state = {
        "p": torch.nn.Parameter(torch.ones(2)),
        "q": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "g": torch.ones(2, requires_grad=True),
        "n": torch.ones(2, requires_grad=True) * 2,
    }

    back = trip(state)

    same({k: v.detach() for k, v in state.items()}, {k: v.detach() for k, v in back.items()})
    assert [type(v) for v in back.values()] == [torch.nn.Parameter, torch.nn.Parameter, torch.Tensor, torch.Tensor]
    assert [v.requires_grad for v in back.values()] == [True, False, True, True]
    assert [leaf.frozen for leaf in stored(state)[3].leaves] == [False, True, False, False]


def test_a_single_leaf_is_a_state_too():
    same(torch.arange(3), trip(torch.arange(3)))
    same(7, trip(7))


def test_long_doubles_come_back_where_they_were_saved():
    value = np.longdouble("1.1")

    back = trip([value, np.array([value])])

    assert type(back[0]) is np.longdouble
    assert back[0] == value == back[1][0]
