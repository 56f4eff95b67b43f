"""Folders of torch.distributed.checkpoint become ours and theirs again, byte for byte, and nothing in them is run."""

import os
import pickle
import warnings
from contextlib import suppress

import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

import model_checkpoint as mc
from model_checkpoint.convert import SourceUnreadable, convert, read_dcp

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.uint16]


pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")  # DCP warns so without a process group


def dcp_save(state, folder):
    dcp.save(state, checkpoint_id=str(folder))
    return folder


def dcp_load(folder):
    return _load_state_dict_from_keys(checkpoint_id=str(folder))


def tensors():
    shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)

    def make(shape, dtype, seed, turned):
        generator = torch.Generator().manual_seed(seed)
        data = torch.randint(0, 2, shape, generator=generator)
        made = data.to(dtype)
        return made.transpose(0, -1) if turned and len(shape) > 1 else made

    return st.builds(make, shapes, st.sampled_from(DTYPES), st.integers(0, 9), st.booleans())


PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.binary(max_size=5),
    st.lists(st.integers(), max_size=3), st.tuples(st.integers(), st.text(max_size=3)),
)  # fmt: skip
KEYS = st.text(st.characters(codec="utf-8", exclude_characters=".", exclude_categories=("Cs",)), min_size=1, max_size=4)
LEAVES = st.one_of(tensors(), PLAIN)
INNER = st.recursive(LEAVES, lambda below: st.dictionaries(KEYS, below, min_size=1, max_size=3), max_leaves=6)
STATES = st.dictionaries(KEYS, st.one_of(INNER, st.lists(tensors(), min_size=1, max_size=3)), min_size=1, max_size=4)


def equal(one, other):
    if isinstance(other, torch.Tensor):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and torch.equal(
            one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8)
        )
    if isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in other)
    if isinstance(other, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=STATES)
def test_any_state_goes_through_dcp_and_ours_and_dcp_again_unchanged(state, tmp_path_factory):
    folder = tmp_path_factory.mktemp("states")
    theirs = dcp_save(state, folder / "theirs")
    truth = dcp_load(theirs)

    convert(theirs, folder / "root", name="ours")
    convert(folder / "root", folder / "again", to="dcp")

    assert equal(mc.load(folder / "root"), truth)
    assert equal(dcp_load(folder / "again"), truth)


@pytest.mark.slow
@pytest.mark.distributed
def test_a_checkpoint_of_four_ranks_becomes_whole_tensors_without_being_put_together_in_memory(zygote, tmp_path):
    zygote.run("tests.convert.dcp_programs:save_theirs", 4, tmp_path / "scene", folder_of=str(tmp_path / "step-9"))

    made = convert(tmp_path / "step-9", tmp_path / "root")
    convert(tmp_path / "root", tmp_path / "again", to="dcp")

    assert (made.step, made.source_format) == (9, "dcp")
    state = mc.load(tmp_path / "root")
    assert torch.equal(state["model"]["rows"], torch.arange(60.0).reshape(10, 6))
    assert torch.equal(state["model"]["columns"], torch.arange(35.0).reshape(5, 7))
    assert equal(dcp_load(tmp_path / "again"), state)
    assert all(health.ok for health in mc.verify(tmp_path / "root"))
    assert zygote.run(
        "tests.convert.dcp_programs:load_theirs", 2, tmp_path / "load", folder_of=str(tmp_path / "again")
    ) == [
        True,
        True,
    ]


def test_a_tensor_longer_than_a_window_is_exported_in_stretches(tmp_path, monkeypatch):
    monkeypatch.setattr("model_checkpoint.convert.targets.dcp_export._WINDOW", 1 << 10)
    monkeypatch.setattr("model_checkpoint.engine.reading.export._WINDOW", 1 << 10)
    state = {"model": {"w": torch.arange(5000.0).reshape(100, 50), "row": torch.arange(900.0)}}
    mc.save(tmp_path / "root", state, step=1)

    convert(tmp_path / "root", tmp_path / "dcp", to="dcp")
    convert(tmp_path / "root", tmp_path / "hf", to="hf")

    assert equal(dcp_load(tmp_path / "dcp"), state)
    assert len(read_dcp(tmp_path / "dcp")["model"]["w"].parts) > 10
    convert(tmp_path / "hf", tmp_path / "again", name="again")
    assert equal(mc.load(tmp_path / "again")["model"], state["model"])


def test_a_state_that_was_not_flattened_stays_so(tmp_path):
    state = {"model": {"w": torch.ones(2)}, "epoch": 1}
    planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
    dcp.save(state, checkpoint_id=str(tmp_path / "theirs"), planner=planner)

    convert(tmp_path / "theirs", tmp_path / "root", step=1)

    assert equal(mc.load(tmp_path / "root"), state)


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch forged",)


def forge(folder, metadata):
    folder.mkdir(exist_ok=True)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    return folder


def described(**changes):
    size = torch.Size([2])
    record = TensorStorageMetadata(TensorProperties(), size, [ChunkStorageMetadata(torch.Size([0]), size)])
    fields = {"state_dict_metadata": {"w": record}, "planner_data": {"w": ("w",)}, "storage_data": {}}
    return Metadata(**fields | changes)


FORGERIES = {
    "a command": (Evil(), "names (posix|nt).system"),
    "a command in a record": (described(storage_meta=Evil()), "system"),
    "a builtin": (described(planner_data=eval), "builtins.eval"),
    "no metadata": ([1, 2], "It is forged"),
    "no tensors": (described(state_dict_metadata=[1]), "It is forged"),
    "a record of another kind": (described(state_dict_metadata={"w": 3}), "It is forged"),
    "a path of another kind": (described(planner_data={"w": (b"x",)}), "It is forged"),
    "a tensor that is nowhere": (described(), "nowhere to be found"),
    "chunks that do not tile": (
        described(state_dict_metadata={"w": TensorStorageMetadata(TensorProperties(), torch.Size([9]), [])}),
        "do not make up",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_metadata_is_refused_and_nothing_runs(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    metadata, message = FORGERIES[name]

    with pytest.raises(SourceUnreadable, match=message):
        read_dcp(forge(tmp_path / "forged-folder", metadata))

    assert not (tmp_path / "forged").exists()


def rewritten(folder, change):
    """The metadata of a real checkpoint with one thing changed."""
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    change(metadata)
    forge(folder, metadata)
    return folder


def test_places_outside_of_the_folder_or_of_its_files_are_refused(tmp_path):
    folder = dcp_save({"w": torch.ones(2)}, tmp_path / "theirs")
    (index,) = pickle.loads((folder / ".metadata").read_bytes()).storage_data

    rewritten(folder, lambda m: setattr(m.storage_data[index], "relative_path", "../theirs/__0_0.distcp"))
    with pytest.raises(SourceUnreadable, match="which is no file of the folder"):
        read_dcp(folder)
    rewritten(folder, lambda m: setattr(m.storage_data[index], "relative_path", "__0_0.distcp"))
    rewritten(folder, lambda m: setattr(m.storage_data[index], "length", 10**9))
    with pytest.raises(SourceUnreadable, match="is torn"):
        read_dcp(folder)


def test_a_torn_file_and_a_value_that_wants_code_are_refused(tmp_path):
    folder = dcp_save({"w": torch.ones(300)}, tmp_path / "torn")
    data = (folder / "__0_0.distcp").read_bytes()
    (folder / "__0_0.distcp").write_bytes(data[:500])
    evil = dcp_save({"w": torch.ones(1), "odd": Evil.__new__(Evil)}, tmp_path / "evil")

    with pytest.raises(SourceUnreadable, match="is torn"):
        read_dcp(folder)
    with pytest.raises(SourceUnreadable, match="cannot be read without running code"):
        read_dcp(evil)
    assert not os.path.exists("forged")


@pytest.mark.parametrize("cut", [0, 10, 100])
def test_torn_metadata_is_refused(tmp_path, cut):
    folder = dcp_save({"w": torch.ones(2)}, tmp_path / "theirs")
    (folder / ".metadata").write_bytes((folder / ".metadata").read_bytes()[:cut])

    with pytest.raises(SourceUnreadable, match="It is torn, of another tool, or forged"):
        read_dcp(folder)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 2000), bit=st.integers(0, 7))
def test_whatever_bit_of_the_metadata_is_flipped_it_is_read_or_refused_by_type(at, bit, flipped):
    folder, data = flipped
    damaged = bytearray(data)
    damaged[at % len(data)] ^= 1 << bit
    (folder / ".metadata").write_bytes(damaged)

    with suppress(mc.CheckpointException):
        read_dcp(folder)


@pytest.fixture(scope="module")
def flipped(tmp_path_factory):
    with warnings.catch_warnings(action="ignore"):
        folder = dcp_save(
            {"w": torch.ones(2), "e": 1, "n": {"x": torch.zeros(2, 3)}}, tmp_path_factory.mktemp("bits") / "x"
        )
    return folder, (folder / ".metadata").read_bytes()
