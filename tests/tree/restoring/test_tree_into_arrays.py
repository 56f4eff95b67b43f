"""Loads into live arrays and containers: in place, checked before anything changes, never a cast."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from tests.tree.carrying import loaded, same, stored

from model_checkpoint.errors import StructureMismatch, UnsupportedType
from model_checkpoint.tree import prepare


def test_live_memory_takes_the_bytes_directly_unless_atomic():
    tree, entries, _, _ = stored({"w": torch.ones(3), "n": np.ones(3)})
    into = {"w": torch.zeros(3), "n": np.zeros(3)}

    direct, staged = prepare(tree, entries, into=into), prepare(tree, entries, into=into, atomic=True)

    assert [direct.target(i).live for i in direct.needed] == [True, True]
    assert [staged.target(i).live for i in staged.needed] == [False, False]
    assert not direct.adopt(0, memoryview(bytearray(12)))


@pytest.mark.parametrize("live", [np.ones(2), torch.ones(2)], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    ("saved", "word"),
    [(5, "a plain value"), ([1.0, 2.0], "a list"), ({"x": np.ones(2)}, "a dict"), (None, "a plain")],
)
def test_what_was_saved_as_no_array_fills_no_live_array(saved, word, live):
    with pytest.raises(StructureMismatch, match=f"w: live it is a {type(live).__qualname__}, saved was {word}"):
        loaded({"w": saved}, {"w": live})


@pytest.mark.parametrize(
    ("live", "told"),
    [
        (torch.zeros(3, dtype=torch.float64), r"w: saved float32 \[3\], live float64 \[3\]"),
        (torch.zeros(4), r"w: saved float32 \[3\], live float32 \[4\]"),
        (np.zeros(3), r"w: saved float32 \[3\], live float64 \[3\]"),
        (7, r"w: saved as an array, live it is a int"),
        ([1], r"w: live it is a list, saved was an array"),
        ({"x": 1}, r"w: live it is a dict, saved was an array"),
        (torch.empty(3, device="meta"), r"w: a meta tensor"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(live, told):
    tree, entries, _, _ = stored({"w": torch.ones(3)})

    with pytest.raises(StructureMismatch, match=told):
        prepare(tree, entries, into={"w": live})


def test_a_read_only_array_is_refused():
    tree, entries, _, _ = stored({"w": np.ones(3)})
    locked = np.zeros(3)
    locked.flags.writeable = False

    with pytest.raises(StructureMismatch, match=r"w: the live array is read-only"):
        prepare(tree, entries, into={"w": locked})


def test_arrays_of_one_framework_fill_those_of_another_without_a_cast():
    into = {"a": np.zeros(3, np.float32), "b": torch.zeros(2, dtype=torch.float64), "c": np.zeros(2, ">i4")}

    loaded({"a": torch.ones(3), "b": np.ones(2), "c": np.array([1, 2], ">i4")}, into)

    assert into["a"].tolist() == [1, 1, 1]
    assert into["b"].tolist() == [1, 1]
    assert into["c"].tolist() == [1, 2]


def test_strided_live_arrays_are_filled():
    matrix, array = torch.zeros(2, 3), np.zeros((4, 4))
    outside = array[1::2].copy()

    loaded({"t": torch.arange(6.0).view(3, 2), "n": np.ones((2, 4))}, {"t": matrix.t(), "n": array[::2]})

    assert matrix.t().tolist() == [[0, 1], [2, 3], [4, 5]]
    assert (array[::2] == 1).all()
    same(outside, array[1::2].copy())


def test_views_stored_apart_fill_live_views_of_one_memory():
    base, live = torch.arange(1000.0), torch.zeros(1000)

    loaded({"a": base[::500], "b": base[:1]}, {"a": live[::500], "b": live[:1]})

    assert live[500] == 500


@dataclass
class Run:
    weights: object
    best: float = 0.0


def test_plain_values_are_set_in_live_containers():
    saved = {"hist": [1, 2, 3], "cfg": {"lr": 0.5, "new": 1}, "run": Run(np.ones(2), 0.9), "pair": (np.ones(1), 2),
             "any": {"x": [torch.ones(1)]}, "later": [torch.ones(2)], "skipped": 1}  # fmt: skip
    weights, inner, history = np.zeros(2), {"lr": 0.0}, []
    live = {"hist": history, "cfg": inner, "run": Run(weights), "pair": (np.zeros(1), 0), "any": {}, "later": None}

    back = loaded(saved, live)

    assert back is live
    assert history == [1, 2, 3]
    assert inner == {"lr": 0.5}
    assert live["run"].weights is weights
    assert weights.tolist() == [1, 1]
    assert live["run"].best == 0.9
    assert live["pair"][1] == 2
    assert live["any"]["x"][0].tolist() == [1]
    assert live["later"][0].tolist() == [1, 1]
    assert "skipped" not in live


def test_an_unknown_framework_is_refused():
    with pytest.raises(UnsupportedType, match=r"framework: 'mxnet' is unknown"):
        prepare(["d", []], [], framework="mxnet")


def test_workers_that_ask_at_once_get_the_same_memory():
    from concurrent.futures import ThreadPoolExecutor

    tree, entries, _, _ = stored([np.zeros(3) for _ in range(200)])
    restore = prepare(tree, entries)

    with ThreadPoolExecutor(8) as pool:
        targets = list(pool.map(restore.target, [i for i in restore.needed for _ in range(8)]))

    assert len({id(target) for target in targets}) == 200
