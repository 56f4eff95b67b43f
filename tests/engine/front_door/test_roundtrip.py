"""What is loaded is what was saved, to the last bit, on every store and in every format."""

import json
import shutil
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from tests.ground.stored.equal_values import same
from torch import nn

import model_checkpoint as mc
from model_checkpoint import CheckpointFormat


class Colour(Enum):
    RED = 1


class Point(NamedTuple):
    x: float
    y: object


@dataclass
class Settings:
    lr: float
    tags: list


TORCH_DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.uint8,
    torch.float8_e4m3fn,
]
tensors = st.builds(
    lambda dtype, shape, seed: torch.from_numpy(np.random.default_rng(seed).integers(0, 2, shape)).to(dtype),
    st.sampled_from(TORCH_DTYPES),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
    st.integers(0, 9),
)
arrays = hnp.arrays(
    st.sampled_from(["f4", "f8", ">f4", "i8", "u2", "?", "c16", "M8[us]", "S3", "U2"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.sampled_from([Colour.RED, datetime(2026, 1, 2, tzinfo=UTC), np.float32(1.5), 2 + 3j])
)
keys = st.text(max_size=4) | st.integers(-3, 3) | st.sampled_from(["__metadata__", "a.b", "1", 1, "a", ""])
states = st.recursive(
    scalars | tensors | arrays,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner, max_size=4)
        | st.builds(Point, st.floats(), inner)
        | st.builds(Settings, st.floats(), st.lists(inner, max_size=2))
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(states)
def test_any_state_comes_back_exactly(state):
    mc.save("memory://roundtrip", {"state": state}, step=1, overwrite=True)

    assert same(mc.load("memory://roundtrip")["state"], state)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(states)
def test_any_state_comes_back_from_disk_and_every_file_opens_with_safetensors(tmp_path, state):
    info = mc.save(tmp_path, {"state": state}, step=1, overwrite=True)

    assert same(mc.load(tmp_path, verify="full")["state"], state)
    for path in Path(info.path).glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            assert all(file.get_tensor(name) is not None for name in file.keys())  # noqa: SIM118  # not a dict


@pytest.mark.parametrize("layout", CheckpointFormat)
def test_every_format_holds_the_same_state(tmp_path, layout):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()

    info = mc.save(tmp_path, {"model": model, "optimizer": optimizer, "n": 1}, step=3, format=layout)
    state = mc.load(tmp_path)

    assert info.format is layout
    assert same(state["model"], model.state_dict())
    assert same(dict(state["optimizer"]["state"][0]), dict(optimizer.state_dict()["state"][0]))


def test_a_consolidated_model_opens_by_its_index_under_its_own_names(tmp_path):
    model = nn.Linear(3, 4)

    info = mc.save(tmp_path, {"model": model, "other": torch.zeros(2)}, step=1, format=CheckpointFormat.CONSOLIDATED)

    index = json.loads((Path(info.path) / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == {"weight", "bias"}
    with safe_open(Path(info.path) / index["weight_map"]["weight"], "pt") as file:
        assert torch.equal(file.get_tensor("weight"), model.weight)
    assert all(health.ok for health in mc.verify(tmp_path))


def index_of(info):
    """What a tool finds that goes by the index: each tensor of the model."""
    index = json.loads((Path(info.path) / "model.safetensors.index.json").read_text())
    return {
        name: safe_open(Path(info.path) / file, "pt").get_tensor(name) for name, file in index["weight_map"].items()
    }


@pytest.mark.parametrize("before", list(CheckpointFormat))
@pytest.mark.parametrize("after", list(CheckpointFormat))
def test_a_checkpoint_of_any_format_is_replaced_by_one_of_any_other(tmp_path, before, after):
    old, new = nn.Linear(3, 4), nn.Linear(3, 5)
    mc.save(tmp_path, {"model": old}, step=1, format=before)

    info = mc.save(tmp_path, {"model": new}, step=1, format=after, overwrite=True)

    assert same(mc.load(tmp_path)["model"], new.state_dict())
    assert all(health.ok for health in mc.verify(tmp_path))
    if after is CheckpointFormat.CONSOLIDATED:
        assert torch.equal(index_of(info)["weight"], new.weight)
    else:
        assert not (Path(info.path) / "model.safetensors.index.json").exists()
    shutil.rmtree(info.path)
    mc.undelete(tmp_path)
    assert same(mc.load(tmp_path)["model"], old.state_dict())
    assert all(health.ok for health in mc.verify(tmp_path))


def test_tied_weights_are_stored_once_and_shared_again(tmp_path):
    weight = torch.randn(100, 100)

    info = mc.save(tmp_path, {"a": weight, "b": weight, "row": weight[3]}, step=1)
    state = mc.load(tmp_path)
    state["a"].zero_()

    assert info.size_bytes < 2 * weight.nbytes
    assert torch.count_nonzero(state["b"]) == 0
    assert torch.count_nonzero(state["row"]) == 0


def test_module_metadata_survives(tmp_path):
    model = nn.BatchNorm1d(3)

    mc.save(tmp_path, {"model": model.state_dict()}, step=1)
    loaded = mc.load(tmp_path)["model"]

    assert isinstance(loaded, OrderedDict)
    assert loaded._metadata == model.state_dict()._metadata


@pytest.mark.parametrize("nbytes", [0, 1, 4095, 4096, 4097, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, (17 << 20) + 5])
def test_sizes_around_pages_chunks_and_slabs_come_back(tmp_path, nbytes):
    array = np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)
    small = np.arange(11, dtype=np.int16)

    mc.save(tmp_path, {"a": array, "s": small, "b": array[: nbytes // 2].copy()}, step=1)
    state = mc.load(tmp_path, verify="full")

    assert np.array_equal(state["a"], array)
    assert np.array_equal(state["s"], small)
    assert np.array_equal(state["b"], array[: nbytes // 2])


def test_buffered_and_direct_writes_give_the_same_file(tmp_path):
    from model_checkpoint.storage.local.store import LocalStore

    state = {"a": np.arange(9 << 20, dtype=np.uint8), "b": np.arange(5000, dtype=np.float32)}

    a = mc.save(LocalStore(tmp_path / "a", direct=True), state, step=1)
    b = mc.save(LocalStore(tmp_path / "b", direct=False), state, step=1)

    files = [next(Path(info.path).glob("*.safetensors")).read_bytes() for info in (a, b)]
    start = int.from_bytes(files[0][:8], "little") + 8
    assert files[0][start:] == files[1][start:]


def test_a_slice_reads_only_what_it_needs(tmp_path):
    array = np.arange(16 << 20, dtype=np.uint8).reshape(1024, -1)
    mc.save(tmp_path, {"w": array, "c": array.astype(np.complex128)[:4]}, step=1)

    assert np.array_equal(mc.load_slice(tmp_path, "w", np.s_[100:103, 5:9]), array[100:103, 5:9])
    assert np.array_equal(mc.load_slice(tmp_path, "w", np.s_[-1]), array[-1])
    assert np.array_equal(mc.load_slice(tmp_path, "c", np.s_[1:3, :7]), array.astype(np.complex128)[1:3, :7])
    with pytest.raises(mc.WrongReference, match="no tensor 'x'"):
        mc.load_slice(tmp_path, "x", 0)


def test_mapped_arrays_equal_copied_ones_and_writes_never_reach_the_file(tmp_path):
    state = {"a": torch.randn(3000, 100), "b": np.arange(10.0), "odd": np.arange(3, dtype=np.uint8), "n": 5}
    mc.save(tmp_path, state, step=1)

    mapped = mc.load(tmp_path, mmap=True)
    unchecked = mc.load(tmp_path, mmap=True, verify="off")
    mapped["a"].zero_()

    assert same(unchecked, state)
    assert same(mc.load(tmp_path), state)
    with pytest.raises(ValueError, match="only with mmap=True"):
        mc.load(tmp_path, verify="off")
