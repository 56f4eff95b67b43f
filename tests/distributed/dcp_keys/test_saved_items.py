"""What a checkpoint holds in the words of DCP: the keys that DCP itself would make, and what lies under each."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from tests.distributed.threads import all_well, on_ranks
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, TensorStorageMetadata

import model_checkpoint as mc
from model_checkpoint.distributed.dcp_keys.saved_items import FLAT_KEYS, read_values, saved_items
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader
from model_checkpoint.errors import StructureMismatch
from model_checkpoint.storage import open_store


def state():
    return {
        "model": OrderedDict(weight=torch.arange(6.0).reshape(2, 3), bias=torch.zeros(0, dtype=torch.int8)),
        "scalar": torch.tensor(7, dtype=torch.bfloat16),
        "array": np.arange(4),
        "by number": {0: {"step": 3}, 1: torch.ones(2)},
        "tensors": [torch.zeros(2), [torch.ones(1)], 5],
        "plain": [1, [2, 3], "x"],
        "arrays": [np.zeros(2)],
        "mappings": [{"a": 1}],
        "empty": [],
        "step": 11,
    }


def found_in(root, name, *, rank=0, world_size=1, per_rank=None):
    return saved_items(open_store(root), name, rank=rank, world_size=world_size, per_rank=per_rank)


def values_of(root, items, keys):
    store = open_store(root)
    with ChunkReader(store, items.manifest, full=False) as medium:
        return read_values(medium, items.manifest, {key: items.nodes[key] for key in keys})


def test_keys_paths_and_values_are_those_that_dcp_makes_of_the_state(tmp_path):
    mc.save(tmp_path, state(), name="first")
    flat, paths = flatten_state_dict(state())

    items = found_in(tmp_path, "first")

    assert items.paths == {key: tuple(path) for key, path in paths.items()}
    assert items.nodes.keys() == flat.keys()
    assert items.tensors.keys() == {key for key, value in flat.items() if isinstance(value, torch.Tensor)}
    assert items.undecided == frozenset()
    values = values_of(tmp_path, items, flat)
    for key, value in flat.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(values[key], value)
            assert values[key].dtype == value.dtype
        else:
            np.testing.assert_equal(values[key], value)


def test_dcp_is_told_of_each_tensor_in_one_piece_and_of_the_rest_as_bytes(tmp_path):
    mc.save(tmp_path, state(), name="first")
    flat, paths = flatten_state_dict(state())

    told = found_in(tmp_path, "first").metadata("some id")

    assert told.planner_data == {key: tuple(path) for key, path in paths.items()}
    assert told.storage_meta.checkpoint_id == "some id"
    assert told.state_dict_metadata.keys() == flat.keys()
    for key, value in flat.items():
        one = told.state_dict_metadata[key]
        if not isinstance(value, torch.Tensor):
            assert type(one) is BytesStorageMetadata
            continue
        assert type(one) is TensorStorageMetadata
        assert (one.size, one.properties.dtype) == (value.shape, value.dtype)
        assert [(chunk.offsets, chunk.sizes) for chunk in one.chunks] == [
            (torch.Size([0] * value.dim()), value.shape),
        ]


def test_a_module_is_looked_into_as_into_a_mapping(tmp_path):
    model = torch.nn.Linear(2, 1)
    mc.save(tmp_path, {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.5)}, name="first")

    items = found_in(tmp_path, "first")

    assert {"model.weight", "model.bias"} <= items.paths.keys()
    assert items.paths["model.weight"] == ("model", "weight")
    assert items.tensors["model.weight"].shape == (1, 2)
    assert all(path[0] == "optimizer" for path in items.paths.values() if path[0] != "model")


def test_keys_of_a_planner_that_does_not_flatten_are_taken_as_they_are(tmp_path):
    mc.save(tmp_path, {"a.b": torch.ones(2), "c": {"d": torch.ones(1)}}, name="flat", metadata={FLAT_KEYS: True})
    mc.save(tmp_path, {"c": {"d": torch.ones(1)}}, name="deep", metadata={"other": 1})

    items = found_in(tmp_path, "flat")

    assert items.paths == {"a.b": ("a.b",), "c": ("c",)}
    assert items.tensors.keys() == {"a.b"}
    assert found_in(tmp_path, "deep").paths == {"c.d": ("c", "d")}


@pytest.fixture
def of_two_ranks(tmp_path):
    """Ranks with a tensor and a number of their own, and a tensor that only the second has."""

    def save(ranks):
        own = {"own": torch.full((2,), ranks.rank), "number": ranks.rank, "same": torch.zeros(3)}
        extra = {"extra": torch.ones(1)} if ranks.rank else {}
        mc.save(tmp_path, {"all": own, **extra}, name="first", coordinator=ranks)

    all_well(on_ranks(2, save))
    return tmp_path


@pytest.mark.parametrize(("rank", "world_size", "per_rank", "whose"), [(0, 2, None, 0), (1, 2, None, 1), (0, 1, 1, 1)])
def test_where_ranks_had_values_of_their_own_each_finds_its_own(of_two_ranks, rank, world_size, per_rank, whose):
    items = found_in(of_two_ranks, "first", rank=rank, world_size=world_size, per_rank=per_rank)

    assert items.undecided == frozenset()
    assert items.tensors.keys() == {"all.own", "all.same", "extra"}
    values = values_of(of_two_ranks, items, ["all.own", "all.number", "all.same"])
    assert (values["all.own"].tolist(), values["all.number"]) == ([whose] * 2, whose)
    items.require_decided({"all.own", "all.number"})


@pytest.mark.parametrize("world_size", [1, 3])
def test_ranks_of_another_number_must_say_whose_values_they_take(of_two_ranks, world_size):
    items = found_in(of_two_ranks, "first", world_size=world_size)

    assert items.undecided == {"all.own", "all.number"}
    assert items.tensors.keys() == {"all.same", "extra"}
    items.require_decided({"all.same"})
    with pytest.raises(StructureMismatch, match=r"^all\.number, all\.own: the 2 ranks that saved have values of their"):
        items.require_decided({"all.own", "all.number", "all.same"})
