"""The plug for DCP in one process: what it accepts, what it refuses, and what a checkpoint of it is to others."""

import pickle
import re
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from tests.ground.stored.stored_files import flip
from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.api import CheckpointException

import model_checkpoint as mc
from model_checkpoint.errors import (
    ChunkMismatch,
    OptionInvalid,
    PartlyLoaded,
    StepExists,
    StructureMismatch,
    UnsupportedType,
    WrongReference,
)
from model_checkpoint.integrations.dcp import StorageReader, StorageWriter
from model_checkpoint.integrations.dcp.checkpoint_ids import named_place
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")  # DCP warns so without a process group


@contextmanager
def told(error, match):
    """What the plug raises, which DCP carries within an error of its own."""
    with pytest.raises(CheckpointException, match="RANK 0") as caught:
        yield
    inner = caught.value.failures[0][0]
    assert type(inner) is error
    assert re.search(match, str(inner)), str(inner)


def small():
    return {"model": {"w": torch.arange(12.0).reshape(3, 4)}, "epoch": 3}


def test_values_keep_their_types_without_pickle(tmp_path):
    state = {"pair": (1, "a"), "raw": b"\x00\x01", "array": np.arange(3), "none": None, "list": [1.5, float("inf")]}

    dcp.save(state, storage_writer=StorageWriter(tmp_path, step=1))

    assert b"torch" not in (tmp_path / "checkpoints" / "step-00000001" / "manifest.json").read_bytes()
    back = {key: None for key in state}
    dcp.load(back, storage_reader=StorageReader(tmp_path))
    assert np.array_equal(back.pop("array"), state.pop("array"))
    assert back == state


def test_a_value_without_a_codec_is_refused_by_its_path(tmp_path):
    class Odd:
        pass

    with told(UnsupportedType, r"^model\.odd"):
        dcp.save({"model": {"odd": Odd()}}, storage_writer=StorageWriter(tmp_path, step=1))
    assert not (tmp_path / "checkpoints").exists() or not list((tmp_path / "checkpoints").iterdir())


def test_a_name_that_is_taken_is_refused_and_kept(tmp_path):
    dcp.save(small(), storage_writer=StorageWriter(tmp_path, step=1))

    with told(StepExists, "already committed"):
        dcp.save(small(), storage_writer=StorageWriter(tmp_path, step=1))
    dcp.save({"epoch": 4}, storage_writer=StorageWriter(tmp_path, step=1, overwrite=True))

    assert mc.load(tmp_path) == {"epoch": 4}


def test_planners_that_do_not_flatten_save_and_load_whole_parts(tmp_path):
    writer = StorageWriter(tmp_path, step=1)
    dcp.save(small(), storage_writer=writer, planner=DefaultSavePlanner(flatten_state_dict=False))

    back = {"model": None, "epoch": 0}
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    dcp.load(back, storage_reader=StorageReader(tmp_path), planner=planner)

    assert torch.equal(back["model"]["w"], small()["model"]["w"])
    assert back["epoch"] == 3
    assert torch.equal(mc.load(tmp_path)["model"]["w"], small()["model"]["w"])


def test_a_planner_that_changes_what_is_written_is_obeyed(tmp_path):
    class Halves(DefaultSavePlanner):
        def transform_object(self, write_item, object):
            made = super().transform_object(write_item, object)
            return made.to(torch.float16) if isinstance(made, torch.Tensor) else made

    dcp.save(small(), storage_writer=StorageWriter(tmp_path, step=1), planner=Halves())

    assert mc.load(tmp_path)["model"]["w"].dtype is torch.float16
    assert mc.load(tmp_path)["epoch"] == 3


def test_a_cast_needs_leave(tmp_path):
    """DCP casts without a word."""
    mc.save(tmp_path, small(), step=1)
    target = {"model": {"w": torch.zeros((3, 4), dtype=torch.float64)}}

    with told(StructureMismatch, "saved as float32, but the tensor to fill is float64"):
        dcp.load(target, storage_reader=StorageReader(tmp_path))
    assert not target["model"]["w"].any()
    dcp.load(target, storage_reader=StorageReader(tmp_path, cast=True))

    assert torch.equal(target["model"]["w"], small()["model"]["w"].double())


def test_any_checkpoint_of_ours_is_loaded_also_with_tied_tensors_and_modules(tmp_path):
    weight = torch.arange(8.0)
    model = torch.nn.Linear(2, 3)
    mc.save(tmp_path, {"whole": weight, "head": weight[2:4], "net": model, "many": {7: torch.ones(1)}}, step=1)

    target = {
        "whole": torch.zeros(8),
        "head": torch.zeros(2),
        "net": torch.nn.Linear(2, 3),
        "many": {"7": torch.zeros(1)},
    }
    dcp.load(target, storage_reader=StorageReader(tmp_path))

    assert torch.equal(target["whole"], weight)
    assert torch.equal(target["head"], weight[2:4])
    assert torch.equal(target["net"].weight, model.weight)
    assert target["many"]["7"].tolist() == [1]


def test_targets_that_are_not_contiguous_are_filled_and_autograd_learns_of_it(tmp_path):
    mc.save(tmp_path, small(), step=1)
    turned, flat = torch.zeros((4, 3)).T, torch.zeros((3, 4))
    before = flat._version

    dcp.load({"model": {"w": turned}}, storage_reader=StorageReader(tmp_path))
    dcp.load({"model": {"w": flat}}, storage_reader=StorageReader(tmp_path))

    assert torch.equal(turned, small()["model"]["w"])
    assert flat._version > before


def damage(root, entry=-1):
    (path,) = (root / "checkpoints" / "step-00000001").glob("*.safetensors")
    flip(path, entry)


def test_a_flipped_bit_is_found(tmp_path):
    """DCP loads it without a word."""
    mc.save(tmp_path, small(), step=1)
    damage(tmp_path)
    target = small()
    target["model"]["w"].zero_()

    with told(ChunkMismatch, "chunk"):
        dcp.load(target, storage_reader=StorageReader(tmp_path))
    assert not target["model"]["w"].any()


def test_a_load_that_stops_midway_names_what_it_has_changed(tmp_path):
    mc.save(tmp_path, {"a": torch.ones(3 << 20), "b": torch.ones(3 << 20)}, step=1)
    damage(tmp_path)
    target = {"a": torch.zeros(3 << 20), "b": torch.zeros(3 << 20)}

    with told(PartlyLoaded, "stopped midway"):
        dcp.load(target, storage_reader=StorageReader(tmp_path))


def test_what_is_not_there_is_told_as_it_is(tmp_path):
    """DCP would say that metadata is None."""
    mc.save(tmp_path, small(), step=1)

    with told(WrongReference, "step 7"):
        dcp.load(small(), storage_reader=StorageReader(tmp_path, step=7))
    with pytest.raises(CheckpointException, match="Missing key in checkpoint state_dict: odd"):
        dcp.load({"odd": torch.ones(1)}, storage_reader=StorageReader(tmp_path))


def test_options_are_checked():
    with pytest.raises(OptionInvalid, match="what is loaded is always verified"):
        StorageReader("runs/a", verify="off")
    with pytest.raises(OptionInvalid, match="expected the folder of one checkpoint"):
        named_place("s3://step-1")
    assert named_place("/step-7") == ("/", "step-7")
    assert named_place("best") == (".", "best")
    assert (named_place("a/global_step20").step, named_place("a/best").step) == (20, None)
    assert StorageWriter.validate_checkpoint_id("runs/a/step-1")
    assert not StorageWriter.validate_checkpoint_id("runs/..")


def test_ids_of_urls_and_references_are_loaded(tmp_path):
    mc.save(tmp_path, small(), step=5)
    target = small()
    target["epoch"] = 0

    dcp.load(target, checkpoint_id=f"{tmp_path}@5", storage_reader=StorageReader("nowhere"))

    assert target["epoch"] == 3


def test_a_writer_takes_a_store_and_keeps_it_for_an_id_under_the_same_root(tmp_path):
    """A store says how the disk is written, such as through the page cache for a load that follows at once."""
    written = []

    class Told(Syscalls):
        def pwrite(self, fd, data, offset):
            written.append(len(data))
            return super().pwrite(fd, data, offset)

    store, state = LocalStore(tmp_path / "a", calls=Told(), direct=False), small()
    dcp.save(state, storage_writer=StorageWriter(store, step=1))
    dcp.save(state, checkpoint_id=tmp_path / "a" / "step-2", storage_writer=StorageWriter(store))
    assert len(written) >= 2
    written.clear()
    dcp.save(state, checkpoint_id=tmp_path / "b" / "step-3", storage_writer=StorageWriter(store))

    assert (written, [info.step for info in mc.list_checkpoints(store)]) == ([], [2, 1])
    assert [info.step for info in mc.list_checkpoints(tmp_path / "b")] == [3]
    with pytest.raises(OptionInvalid, match="a store cannot go to the process of an async_save"):
        pickle.dumps(StorageWriter(store))
