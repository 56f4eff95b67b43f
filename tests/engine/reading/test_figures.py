"""How the values of tensors lie and how far they moved, compared with NumPy's own words."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import model_checkpoint as mc
from model_checkpoint.engine.reading.figures import tensor_figures as module
from model_checkpoint.engine.reading.figures.movement import movement_of
from model_checkpoint.engine.reading.figures.number_figures import histogram, sum_up
from model_checkpoint.engine.reading.figures.tensor_figures import tensor_figures
from model_checkpoint.engine.reading.tensor_reader import TensorReader
from model_checkpoint.errors import ChunkMismatch


def figures_in(root, bins=16):
    with TensorReader(root) as tensors:
        return {name: tensor_figures(tensors, name, bins=bins) for name in tensors.specs}


NUMBERS = st.floats(-1e9, 1e9) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0])


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, st.integers(0, 60), elements=NUMBERS), st.integers(1, 9), st.integers(1, 7))
def test_figures_are_those_of_the_whole_however_it_is_cut(values, bins, size):
    blocks = [values[start : start + size] for start in range(0, len(values), size)]

    found = sum_up(lambda: iter(blocks), bins)

    good = values[np.isfinite(values)]
    assert (found.count, found.nan, found.inf) == (len(values), np.isnan(values).sum(), np.isinf(values).sum())
    assert found.zeros == (values == 0).sum()
    assert sum(found.histogram) == len(good)
    if len(good):
        assert (found.min, found.max) == (good.min(), good.max())
        assert found.mean == pytest.approx(good.mean(), abs=1e-6)
        assert found.std == pytest.approx(good.std(), abs=1e-3, rel=1e-9)
        assert found.norm == pytest.approx(np.linalg.norm(good), abs=1e-6, rel=1e-9)
    else:
        assert (found.min, found.mean, found.norm) == (None, None, None)


def test_a_large_mean_costs_no_digits():
    values = 1e9 + np.array([-1.0, 1.0] * 500)

    assert sum_up(lambda: iter(np.split(values, 10)), 2).std == pytest.approx(1.0)


def test_the_widest_numbers_have_a_histogram():
    widest = np.array([-np.finfo(np.float64).max, np.finfo(np.float64).max])

    assert sum_up(lambda: iter([widest]), 2).histogram == (1, 1)


@given(st.lists(st.integers(-64, 64), min_size=1), st.sampled_from([1, 2, 4, 8]), st.integers(1, 7))
def test_a_histogram_counts_as_numpy_does(values, bins, size):
    ends = np.array([-64.0, 64.0])  # so that the ends of all bins are whole numbers
    blocks = [ends, *np.array_split(np.array(values, float), size)]

    found = histogram(lambda: iter(blocks), -64.0, 64.0, bins)

    assert list(found) == np.histogram([*ends, *values], bins, (-64, 64))[0].tolist()


def test_numbers_that_are_all_alike_lie_in_the_middle():
    assert sum_up(lambda: iter([np.full(3, 7.0)]), 5).histogram == (0, 0, 3, 0, 0)


def test_a_tensor_larger_than_its_share_of_memory_is_read_in_pieces(tmp_path, monkeypatch):
    whole = np.arange(700.0).reshape(70, 10)
    mc.save(
        tmp_path,
        {"w": whole, "scalar": np.array(2, np.float32), "none": np.zeros((0, 3)), "words": np.array(["a"])},
        step=1,
    )
    in_one = figures_in(tmp_path, bins=4)
    monkeypatch.setattr(module, "_AT_ONCE", 800)

    assert figures_in(tmp_path, bins=4) == in_one
    assert in_one["w"].histogram == (175, 175, 175, 175)
    assert [name for name, figures in in_one.items() if figures is None] == ["words"]


def test_bytes_are_told_as_they_are_looked_at_also_of_what_has_no_figures(tmp_path):
    mc.save(tmp_path, {"w": np.arange(70.0), "words": np.array(["ab"])}, step=1)
    told = []

    with TensorReader(tmp_path) as tensors:
        for name in ("w", "words"):
            tensor_figures(tensors, name, bins=2, advance=told.append)

    assert told == [560, 8]


def test_every_real_dtype_has_figures(tmp_path):
    torch = pytest.importorskip("torch")
    state = {
        "bf16": torch.ones(3, dtype=torch.bfloat16),
        "fp8": torch.ones(3).to(torch.float8_e4m3fn),
        "flag": np.array([True, False]),
        "int": np.array([2**62, -5]),
        "complex": np.ones(2, complex),
    }
    mc.save(tmp_path, state, step=1)

    told = figures_in(tmp_path)

    assert {name for name, figures in told.items() if figures is None} == {"complex"}
    assert (told["bf16"].mean, told["fp8"].max, told["flag"].zeros) == (1.0, 1.0, 1)


def test_damage_is_never_summed_up(tmp_path):
    mc.save(tmp_path, {"w": np.arange(9.0)}, step=1)
    (data,) = (tmp_path / "checkpoints/step-00000001").glob("*.safetensors")
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")

    with pytest.raises(ChunkMismatch, match="step-00000001"):
        figures_in(tmp_path)


def test_movement_is_that_of_the_numbers():
    a, b = np.random.default_rng(6).normal(size=(2, 1000))

    found = movement_of(a, b)

    assert found.rel == pytest.approx(np.linalg.norm(b - a) / np.linalg.norm(a))
    assert found.cos == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert movement_of(a, b[:5]) is None


def test_a_turned_phase_and_the_last_digit_of_a_large_number_are_movement():
    turned = movement_of(np.array([1 + 0j]), np.array([1j]))
    counted = movement_of(np.array([2**62]), np.array([2**62 + 1]))

    assert (turned.gap, turned.cos) == (pytest.approx(2**0.5), pytest.approx(0.0))
    assert counted.changed == 1


def test_what_is_finite_no_more_is_counted_and_left_out_of_norms():
    a, b = np.array([3.0, 4.0, np.nan, 1.0, np.inf]), np.array([3.0, 8.0, np.nan, -np.inf, 0.0])

    found = movement_of(a, b)
    gone = movement_of(np.ones(3), np.full(3, np.nan))

    assert (found.spoiled, found.changed, found.compared) == (1, 3, 2)
    assert (found.gap, found.before, found.rel) == (4.0, 5.0, 0.8)
    assert found.max_abs == math.inf
    assert (gone.spoiled, gone.changed, gone.rel) == (3, 3, None)
    assert math.isnan(gone.max_abs)
    assert math.isnan(gone.mean_abs)


def test_from_zero_every_movement_is_infinite_and_none_is_none():
    assert movement_of(np.zeros(2), np.ones(2)).rel == math.inf
    assert movement_of(np.zeros(2), np.zeros(2)).rel == 0.0
    assert movement_of(np.ones((0, 3)), np.ones((0, 3))).mean_abs == 0.0


def test_blocks_of_a_tensor_sum_up_to_the_whole():
    a, b = np.random.default_rng(7).normal(size=(2, (1 << 20) + 5)).astype(np.float32)
    b[-1] = np.nan

    found = movement_of(a, b)

    gap = (b[:-1] - a[:-1].astype(np.float64)).astype(np.float64)
    assert found.gap == pytest.approx(np.linalg.norm(gap))
    assert found.spoiled == 1
    assert math.isnan(found.max_abs)
