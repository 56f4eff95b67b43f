"""Files of torch.save, safetensors, Hugging Face and Orbax become checkpoints of ours, and ours theirs."""

import json
import struct

import numpy as np
import pytest
import safetensors.torch
import torch

import model_checkpoint as mc
from model_checkpoint.convert import SourceUnreadable, convert
from model_checkpoint.errors import OptionInvalid, StepExists, UnsupportedType


def weights():
    return {"layer.0.w": torch.arange(6.0).reshape(2, 3), "layer.0.b": torch.ones(2, dtype=torch.bfloat16)}


def same(one, other):
    return one.keys() == other.keys() and all(
        one[key].dtype == other[key].dtype and torch.equal(one[key], other[key]) for key in other
    )


def test_a_file_of_torch_goes_there_and_back(tmp_path):
    tied = torch.arange(4.0)
    state = {"model": weights(), "lr": 0.5, "betas": (0.9, 0.99), "a": tied, "b": tied[1:3], "names": ["x", None]}
    torch.save(state, tmp_path / "step-12.pt")

    made = convert(tmp_path / "step-12.pt", tmp_path / "root")
    convert(tmp_path / "root@12", tmp_path / "back.pt", to="pt")

    back = torch.load(tmp_path / "back.pt", weights_only=True)
    assert (made.step, made.source_format) == (12, "pt")
    assert same(back["model"], state["model"])
    assert back["betas"] == (0.9, 0.99)
    assert torch.equal(back["b"], tied[1:3])
    assert back["a"].untyped_storage().data_ptr() == back["b"].untyped_storage().data_ptr()


def test_a_file_of_an_old_torch_is_read(tmp_path):
    torch.save({"w": torch.ones(3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)

    convert(tmp_path / "old.pt", tmp_path / "root")

    assert torch.equal(mc.load(tmp_path / "root")["w"], torch.ones(3))
    assert mc.list_checkpoints(tmp_path / "root")[0].prefix == "old"


def test_a_file_that_wants_code_or_is_torn_or_foreign_is_refused(tmp_path):
    torch.save({"net": torch.nn.Linear(1, 1)}, tmp_path / "module.pt")
    torch.save({"w": torch.ones(300)}, tmp_path / "whole.pt")
    (tmp_path / "torn.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:700])
    (tmp_path / "text.pt").write_text("no checkpoint")
    (tmp_path / "notes.txt").write_text("no checkpoint")

    for name in ("module.pt", "torn.pt", "text.pt"):
        with pytest.raises(SourceUnreadable, match="cannot be read without running code, or is torn"):
            convert(tmp_path / name, tmp_path / "root")
    with pytest.raises(SourceUnreadable, match="is neither a file of torch"):
        convert(tmp_path / "notes.txt", tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_safetensors_file_goes_there_and_back(tmp_path):
    safetensors.torch.save_file(weights(), tmp_path / "w.safetensors", metadata={"format": "pt"})

    convert(tmp_path / "w.safetensors", tmp_path / "root", step=3)
    convert(tmp_path / "root", tmp_path / "back.safetensors", to="safetensors", part="model")

    assert same(mc.load(tmp_path / "root")["model"], weights())
    back = safetensors.torch.load_file(tmp_path / "back.safetensors")
    assert same({key.removeprefix("model."): value for key, value in back.items()}, weights())


def forged_header(path, header, data=b""):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, "is torn"),
        ({"w": {"dtype": "F32", "shape": [-1, -4], "data_offsets": [0, 16]}}, "does not take"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]}}, "does not take"),
        ({"w": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, "which torch cannot hold"),
        ({"w": {"dtype": "F32"}}, "its header cannot be read"),
        ([1], "its header cannot be read"),
    ],
)
def test_a_forged_header_is_refused(tmp_path, header, message):
    path = forged_header(tmp_path / "forged.safetensors", header, b"12345678")

    with pytest.raises(SourceUnreadable, match=message):
        convert(path, tmp_path / "root")


def test_a_file_that_announces_more_than_it_has_is_refused(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", 1 << 40))
    (tmp_path / "b.safetensors").write_bytes(b"")

    with pytest.raises(SourceUnreadable, match="announces a header"):
        convert(tmp_path / "a.safetensors", tmp_path / "root")
    with pytest.raises(SourceUnreadable, match="is torn"):
        convert(tmp_path / "b.safetensors", tmp_path / "root")


def hugging_folder(folder, *, sharded):
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "none"}')
    if not sharded:
        safetensors.torch.save_file(weights(), folder / "model.safetensors")
        return folder
    where = {}
    for number, (name, tensor) in enumerate(weights().items(), 1):
        file = f"model-{number:05d}-of-00002.safetensors"
        safetensors.torch.save_file({name: tensor}, folder / file)
        where[name] = file
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


@pytest.mark.parametrize("sharded", [False, True])
def test_a_folder_of_hugging_face_goes_there_and_back_with_its_configuration(tmp_path, sharded):
    folder = hugging_folder(tmp_path / "theirs", sharded=sharded)

    convert(folder, tmp_path / "root")
    made = convert(tmp_path / "root", tmp_path / "back", to="hf")

    assert same(mc.load(tmp_path / "root")["model"], weights())
    assert same(safetensors.torch.load_file(tmp_path / "back" / "model.safetensors"), weights())
    assert (tmp_path / "back" / "config.json").read_text() == '{"model_type": "none"}'
    assert str(tmp_path / "back" / "config.json") in made.files


def test_an_index_that_lies_is_refused(tmp_path):
    folder = hugging_folder(tmp_path / "theirs", sharded=True)
    index = folder / "model.safetensors.index.json"

    index.write_text(json.dumps({"weight_map": {"odd": "model-00001-of-00002.safetensors"}}))
    with pytest.raises(SourceUnreadable, match="but not in the files it names"):
        convert(folder, tmp_path / "root")
    index.write_text(json.dumps({"weight_map": {"odd": "../x.safetensors"}}))
    with pytest.raises(SourceUnreadable, match="which is no file of the folder"):
        convert(folder, tmp_path / "root")


def test_from_one_foreign_format_into_another_in_one_call(tmp_path):
    folder = hugging_folder(tmp_path / "theirs", sharded=True)

    made = convert(folder, tmp_path / "out.pt", to="pt", part="model")

    assert (made.source_format, made.to, made.tensors) == ("hf", "pt", 2)
    assert same(torch.load(tmp_path / "out.pt")["model"], weights())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.pt", "theirs"]


@pytest.mark.slow
def test_a_folder_of_orbax_goes_there_and_back(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    state = {"params": {"w": np.arange(6.0, dtype=np.float32).reshape(2, 3), "b": np.ones(2)}, "step": 4}
    mc.save(tmp_path / "root", state, step=4)

    convert(tmp_path / "root", tmp_path / "orbax", to="orbax")
    convert(tmp_path / "orbax", tmp_path / "again", step=4)

    back = mc.load(tmp_path / "again")
    assert np.array_equal(back["params"]["w"], state["params"]["w"])
    assert np.array_equal(back["params"]["b"], state["params"]["b"])
    assert back["step"] == 4
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "_METADATA").write_text("{")
    with pytest.raises(SourceUnreadable, match="Orbax cannot read it"):
        convert(tmp_path / "torn", tmp_path / "root")


def test_what_is_there_is_never_replaced_and_a_source_never_changed(tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "step-1.pt")
    before = (tmp_path / "step-1.pt").read_bytes()
    convert(tmp_path / "step-1.pt", tmp_path / "root")
    (tmp_path / "out.pt").write_text("mine")

    with pytest.raises(StepExists, match="already committed"):
        convert(tmp_path / "step-1.pt", tmp_path / "root")
    with pytest.raises(StepExists, match="exists already"):
        convert(tmp_path / "root", tmp_path / "out.pt", to="pt")
    convert(tmp_path / "step-1.pt", tmp_path / "root", overwrite=True, metrics={"loss": 1.0})

    assert (tmp_path / "out.pt").read_text() == "mine"
    assert (tmp_path / "step-1.pt").read_bytes() == before
    assert mc.list_checkpoints(tmp_path / "root")[0].metrics == {"loss": 1.0}


def test_what_cannot_be_asked_for_is_refused(tmp_path):
    mc.save(tmp_path / "root", {"w": torch.ones(1), "raw": b"x"}, step=1)

    with pytest.raises(OptionInvalid, match="expected one of native, dcp"):
        convert(tmp_path / "root", tmp_path / "x", to="onnx")
    with pytest.raises(OptionInvalid, match="is a checkpoint of ours already"):
        convert(tmp_path / "root", tmp_path / "x")
    with pytest.raises(UnsupportedType, match="raw: a bytes has no place in a checkpoint of Orbax"):
        convert(tmp_path / "root", tmp_path / "x", to="orbax")
    assert not (tmp_path / "x").exists()
