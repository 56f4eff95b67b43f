"""Shards as bytes with a table, saved and loaded rank by rank, and state dicts."""

import ml_dtypes
import numpy as np
import pytest
from tests.distributed.threads import all_well, on_ranks, told

import model_checkpoint as mc
from model_checkpoint.distributed import (
    CheckpointCoordinator,
    CheckpointLoader,
    LocalCoordinator,
    ShardData,
    StateDict,
    TensorMetadata,
)
from model_checkpoint.errors import OptionInvalid, WrongReference


@pytest.mark.parametrize(("source", "target"), [(3, 2), (2, 3), (1, 1)])
def test_shards_of_bytes_go_to_the_rank_of_their_number(tmp_path, source, target):
    def save(coordinator):
        tensors = {"w": np.full((2, coordinator.rank + 1), coordinator.rank, np.float32), "same": np.arange(5)}
        saver = CheckpointCoordinator(coordinator, tmp_path)
        return saver.coordinate_save("x", lambda: ShardData.of(tensors, rank=coordinator.rank))

    def load(coordinator):
        return CheckpointLoader(coordinator, tmp_path).coordinate_load("x", target)

    metadata = all_well(on_ranks(source, save))
    assert metadata[0].world_size == source
    assert metadata[1:] == [None] * (source - 1)
    for rank, result in enumerate(all_well(on_ranks(target, load))):
        assert [shard.rank for shard in result.shards] == list(range(rank, source, target))
        for shard in result.shards:
            tensors = shard.tensors()
            assert tensors["w"].tolist() == [[shard.rank] * (shard.rank + 1)] * 2
            assert tensors["w"].dtype == np.float32
            assert tensors["same"].tolist() == [0, 1, 2, 3, 4]


def test_ranks_that_share_shards_out_differently_are_told_so(tmp_path):
    mc.save(tmp_path, {"shard": {"w": np.ones(2)}}, name="x")
    mc.save(tmp_path, {"shard": {"w": np.ones(2)}}, name="y")

    def load(prefixes, targets):
        def work(ranks):
            return CheckpointLoader(ranks, tmp_path).coordinate_load(prefixes[ranks.rank], targets[ranks.rank])

        return told(on_ranks(2, work))

    assert "rank 1 calls with target_world_size=3, rank 0 with 2" in str(load("xx", [2, 3]))
    assert "calls with id=" in str(load("xy", [2, 2]))


@pytest.mark.parametrize("size", [0, -1, True, "2"])
def test_a_world_of_no_ranks_is_refused(tmp_path, size):
    mc.save(tmp_path, {"shard": {"w": np.ones(2)}}, name="x")

    with pytest.raises(ValueError, match=r"target_world_size=.*: expected 1 or more"):
        CheckpointLoader(LocalCoordinator(), tmp_path).coordinate_load("x", size)


def test_what_is_no_shard_is_refused(tmp_path):
    mc.save(tmp_path, {"model": {"w": np.ones(2)}}, name="x")

    with pytest.raises(WrongReference, match="its parts are model"):
        CheckpointLoader(LocalCoordinator(), tmp_path).coordinate_load("x")
    with pytest.raises(TypeError, match="a ShardData or a mapping of parts, got int"):
        CheckpointCoordinator(LocalCoordinator(), tmp_path).coordinate_save("y", lambda: 3)


@pytest.mark.parametrize(
    ("info", "what"),
    [
        (TensorMetadata("w", (2,), "float32", 0, 4), "4 bytes from 0 on are no float32 of shape"),
        (TensorMetadata("w", (2,), "float32", 4, 8), "8 bytes from 4 on"),
        (TensorMetadata("w", (2,), "float32", -4, 8), "8 bytes from -4 on"),
        (TensorMetadata("w", (2,), "float33", 0, 8), "no such data type, 'float33'"),
    ],
)
def test_a_table_that_does_not_fit_the_bytes_is_refused(info, what):
    with pytest.raises(OptionInvalid, match=what):
        ShardData(bytes(8), [info]).tensors()


def test_types_that_numpy_does_not_have_come_back_too():
    small = np.arange(3).astype(ml_dtypes.bfloat16)

    tensors = ShardData.of({"scalar": np.float16(2), "small": small}).tensors()

    assert tensors["small"].dtype == small.dtype
    assert (tensors["small"].tolist(), tensors["scalar"].shape, tensors["scalar"].tolist()) == ([0, 1, 2], (), 2)


def test_a_state_dict_is_built_and_edited():
    state = StateDict({"a": 1})
    state["b"] = 2

    assert state.get_tensor("b") == 2
    assert state.has_tensor("a")
    assert state.remove_tensor("a")
    assert not state.remove_tensor("a")
    assert state.get_tensor_or_null("a") is None
    with pytest.raises(KeyError, match="no tensor 'a' in this state; it has 1: b"):
        state.get_tensor("a")
    with pytest.raises(KeyError, match="it has 0: none"):
        StateDict().get_tensor("a")
    with pytest.raises(KeyError, match=r'it has 9: 0, 1, 2, 3, 4, 5, 6, 7"$'):
        StateDict.fromkeys("012345678").get_tensor("a")
