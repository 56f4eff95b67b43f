"""What is told of a checkpoint without reading its data: its parts, its files, and where in them each piece lies."""

import os

import numpy as np
import pytest
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.distributed import CheckpointFormat, Shard, TensorMetadata
from model_checkpoint.distributed.records.checkpoint_metadata import metadata_of
from model_checkpoint.storage import open_store

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
SAME = np.arange(5, dtype=np.int16)


def save(ranks, root):
    """Two rows of each rank, and an array that is the same on both."""
    mine = Shard(ROWS[2 * ranks.rank :][:2].copy(), global_shape=ROWS.shape, offsets=(2 * ranks.rank, 0))
    state = {"model": {"rows": mine, "same": SAME}, "own": ranks.rank}
    mc.save(root, state, name="x", coordinator=ranks, metadata={"a": 1})


@pytest.fixture
def metadata(tmp_path):
    all_well(on_ranks(2, lambda ranks: save(ranks, tmp_path)))
    return metadata_of(open_store(tmp_path), "x")


def test_each_piece_is_told_by_the_file_it_lies_in_and_the_place_it_has_in_the_whole(metadata):
    pieces = {(one.name, one.global_offset): one for one in metadata.tensors}

    assert pieces.keys() == {("model.rows", (0, 0)), ("model.rows", (2, 0)), ("model.same", (0,))}
    for shard in metadata.shards:
        with open(os.path.join(metadata.path, shard.file_path), "rb") as file:
            content = file.read()
        assert (shard.file_size, len(shard.checksum)) == (len(content), 64)
        for one in shard.tensors:
            data = np.frombuffer(content[one.offset : one.offset + one.size], one.data_type).reshape(one.shape)
            whole = {"model.rows": ROWS, "model.same": SAME}[one.name]
            first = one.global_offset[0]
            assert np.array_equal(data, whole[first : first + one.shape[0]])
            assert (data.dtype, one.global_shape, one.whole_shape) == (whole.dtype, whole.shape, whole.shape)


def test_each_file_is_told_by_the_rank_that_wrote_it(metadata, tmp_path):
    ranks = {shard.file_path: shard.rank for shard in metadata.shards}

    assert ranks.keys() == set(os.listdir(metadata.path)) - {"manifest.json"}
    assert all(file.startswith((f"r{rank}-", f"rank-{rank}-")) for file, rank in ranks.items())
    assert sorted(ranks.values()) == [0, 0, 1, 1]
    assert metadata.size_bytes == sum(shard.file_size for shard in metadata.shards)
    mc.save(tmp_path, {"model": SAME}, name="alone")
    (alone,) = metadata_of(open_store(tmp_path), "alone").shards
    assert (alone.rank, [one.name for one in alone.tensors]) == (0, ["model"])


def test_a_checkpoint_is_told_in_the_words_of_users(metadata, tmp_path):
    assert (metadata.prefix, metadata.version, metadata.world_size) == ("x", "1.0.0", 2)
    assert (metadata.format, metadata.parts) == (CheckpointFormat.MULTI_SHARD, ("model", "own"))
    assert (metadata.path, metadata.custom_fields) == (str(tmp_path / "checkpoints" / "x"), {"a": 1})
    assert metadata.id == mc.list_checkpoints(tmp_path)[0].id


@pytest.mark.parametrize("state", [[], [SAME], SAME, {}])
def test_what_is_no_mapping_has_no_parts(tmp_path, state):
    mc.save(tmp_path, state, name="x")

    metadata = metadata_of(open_store(tmp_path), "x")

    assert (metadata.parts, metadata.custom_fields) == ((), {})
    assert len(list(metadata.tensors)) == (0 if isinstance(state, (list, dict)) and not state else 1)


def test_a_tensor_of_which_nothing_else_is_said_is_whole_and_lies_nowhere():
    one = TensorMetadata("w", (2, 3), "float32")

    assert (one.offset, one.size, one.whole_shape, one.global_offset) == (0, 0, (2, 3), None)
