"""How the values of tensors lie, compared with NumPy's own words."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import model_checkpoint as mc
from model_checkpoint.cli.finding import value_spread as module
from model_checkpoint.cli.finding.value_spread import spread_of, tensor_spreads
from model_checkpoint.errors import ChunkMismatch, OptionInvalid

NUMBERS = st.floats(-1e9, 1e9) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0])


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, st.integers(0, 60), elements=NUMBERS), st.integers(1, 9), st.integers(1, 7))
def test_figures_are_those_of_the_whole_however_it_is_cut(values, bins, size):
    blocks = [values[start : start + size] for start in range(0, len(values), size)]

    found = spread_of(lambda: iter(blocks), bins)

    good = values[np.isfinite(values)]
    assert (found.count, found.nan, found.inf) == (len(values), np.isnan(values).sum(), np.isinf(values).sum())
    assert found.zeros == (values == 0).sum()
    assert sum(found.histogram) == len(good)
    if len(good):
        assert (found.min, found.max) == (good.min(), good.max())
        assert found.mean == pytest.approx(good.mean(), abs=1e-6)
        assert found.std == pytest.approx(good.std(), abs=1e-3, rel=1e-9)
    else:
        assert (found.min, found.mean) == (None, None)


def test_a_large_mean_costs_no_digits():
    values = 1e9 + np.array([-1.0, 1.0] * 500)

    assert spread_of(lambda: iter(np.split(values, 10)), 2).std == pytest.approx(1.0)


def test_the_widest_numbers_have_a_histogram():
    widest = np.array([-np.finfo(np.float64).max, np.finfo(np.float64).max])

    assert spread_of(lambda: iter([widest]), 2).histogram == (1, 1)


def test_a_tensor_larger_than_its_share_of_memory_is_read_in_pieces(tmp_path, monkeypatch):
    whole = np.arange(700.0).reshape(70, 10)
    mc.save(
        tmp_path,
        {"w": whole, "scalar": np.array(2, np.float32), "none": np.zeros((0, 3)), "words": np.array(["a"])},
        step=1,
    )
    in_one = tensor_spreads(tmp_path, bins=4)
    monkeypatch.setattr(module, "_AT_ONCE", 800)

    assert tensor_spreads(tmp_path, bins=4) == in_one
    assert in_one[0].figures.histogram == (175, 175, 175, 175)
    assert [one.figures is None for one in in_one] == [False, False, False, True]


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

    told = {one.name: one.figures for one in tensor_spreads(tmp_path)}

    assert {name for name, figures in told.items() if figures is None} == {"complex"}
    assert (told["bf16"].mean, told["fp8"].max, told["flag"].zeros) == (1.0, 1.0, 1)


def test_damage_is_never_summed_up(tmp_path):
    mc.save(tmp_path, {"w": np.arange(9.0)}, step=1)
    (data,) = (tmp_path / "checkpoints/step-00000001").glob("*.safetensors")
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")

    with pytest.raises(ChunkMismatch, match="step-00000001"):
        tensor_spreads(tmp_path)


def test_a_nonsense_number_of_bins_is_refused(tmp_path):
    with pytest.raises(OptionInvalid, match="bins must be"):
        tensor_spreads(tmp_path, bins=0)
