"""Exports: files other tools open, whole or not there at all, with no more than a window of a tensor in memory."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import model_checkpoint as mc
from model_checkpoint.engine.reading import export
from model_checkpoint.engine.reading.export import export_file, export_folder
from model_checkpoint.errors import OptionInvalid, StepExists, StorageFailure, UnsupportedType
from model_checkpoint.options import LayoutLimits

STATE = {
    "model": {"a": np.arange(12, dtype=np.float32).reshape(6, 2), "b": np.arange(5.0), "zero": np.array(7)},
    "other": {"c": np.ones(3, np.int8)},
    "epoch": 3,
}
ARRAYS = {"model.a": STATE["model"]["a"], "model.b": STATE["model"]["b"], "model.zero": STATE["model"]["zero"]}


@pytest.fixture
def root(tmp_path):
    mc.save(f"memory://{tmp_path.name}", STATE, step=1)
    return f"memory://{tmp_path.name}"


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("window", [1, 8, 17, 1 << 20])
def test_a_file_holds_the_tensors_of_the_parts_under_their_names(root, tmp_path, monkeypatch, window):
    monkeypatch.setattr(export, "_WINDOW", window)
    told, events = [], tmp_path / "w.safetensors"

    done = export_file(root, events, parts="model", progress=told.append)

    same(load_file(events), ARRAYS)
    assert (done.files, done.tensors, done.nbytes) == ((str(events),), 3, 48 + 40 + 8)
    assert told[-1].done == told[-1].total == 96
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


def test_all_parts_are_exported_by_default(root, tmp_path):
    export_file(root, tmp_path / "w")

    same(load_file(tmp_path / "w"), ARRAYS | {"other.c": STATE["other"]["c"]})


def test_numbers_that_are_packed_two_to_a_byte_keep_their_bytes_and_their_count(tmp_path):
    packed = torch.arange(6, dtype=torch.uint8).reshape(2, 3)
    mc.save(tmp_path / "run", {"x": packed.view(torch.float4_e2m1fn_x2)}, step=1)

    export_file(tmp_path / "run", tmp_path / "w.safetensors")

    raw = (tmp_path / "w.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    assert json.loads(raw[8 : 8 + length])["x"] == {"dtype": "F4", "shape": [2, 6], "data_offsets": [0, 6]}
    assert raw[8 + length :] == bytes(range(6))


def test_views_with_smaller_or_larger_elements_than_their_array_are_exported(tmp_path):
    z, b = torch.complex(torch.arange(12.0), -torch.arange(12.0)).reshape(4, 3), np.arange(64, dtype=np.uint8)
    views = {"real": z.real, "imag": z.imag, "floats": b.view(np.float32)[1:5], "days": b.view("M8[D]")}
    mc.save(tmp_path / "run", {"z": z, "b": b, **views}, step=1)

    export_file(tmp_path / "run", tmp_path / "w.safetensors", parts=["real", "imag", "floats"])

    same(load_file(tmp_path / "w.safetensors"), {name: np.asarray(views[name]) for name in ("real", "imag", "floats")})
    told = {line.name: line.nbytes for line in mc.describe(tmp_path / "run").tensors}
    assert told == {"z": 96, "real": 48, "imag": 48, "b": 64, "floats": 16, "days": 64}


def test_views_of_one_storage_are_exported_each_with_its_own_elements(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_WINDOW", 8)
    whole = torch.arange(12.0).reshape(4, 3)
    mc.save(tmp_path / "run", {"whole": whole, "column": whole[:, 1], "turned": whole.T}, step=1)

    export_file(tmp_path / "run", tmp_path / "w.safetensors")

    wanted = {"whole": whole, "column": whole[:, 1], "turned": whole.T}
    same(load_file(tmp_path / "w.safetensors"), {name: one.contiguous().numpy() for name, one in wanted.items()})


@pytest.mark.parametrize(
    ("room", "files"),
    [
        (1 << 30, {"model.safetensors": ["a", "b", "zero"]}),
        (96, {"model.safetensors": ["a", "b", "zero"]}),
        (95, {"model-00001-of-00002.safetensors": ["a", "b"], "model-00002-of-00002.safetensors": ["zero"]}),
        (48, {"model-00001-of-00002.safetensors": ["a"], "model-00002-of-00002.safetensors": ["b", "zero"]}),
        (1, {f"model-0000{i}-of-00003.safetensors": [name] for i, name in enumerate(["a", "b", "zero"], 1)}),
    ],
)
def test_a_folder_is_cut_where_files_grow_large_and_has_an_index_then(root, tmp_path, monkeypatch, room, files):
    monkeypatch.setattr(export, "LayoutLimits", lambda: LayoutLimits(file_bytes=room, chunk_bytes=1))

    done = export_folder(root, tmp_path / "out", beside={"config.json": b"{}"})

    index = {"model.safetensors.index.json"} if len(files) > 1 else set()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*files, "config.json", *index}
    assert set(done.files) == {str(tmp_path / "out" / name) for name in (*files, "config.json", *index)}
    for file, names in files.items():
        same(load_file(tmp_path / "out" / file), {name: STATE["model"][name] for name in names})
    if index:
        told = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
        wanted = {name: file for file, names in files.items() for name in names}
        assert told == {"metadata": {"total_size": 96}, "weight_map": wanted}


def test_nothing_is_written_over(root, tmp_path):
    (tmp_path / "w").write_bytes(b"mine")

    with pytest.raises(StepExists, match=r"w: exists already; nothing was written"):
        export_file(root, tmp_path / "w")
    with pytest.raises(StepExists, match=r"w: exists already; nothing was written"):
        export_folder(root, tmp_path / "w")
    assert (tmp_path / "w").read_bytes() == b"mine"


def test_what_came_to_the_place_meanwhile_stays_and_no_draft_does(root, tmp_path):
    for make in (export_file, export_folder):
        place = tmp_path / make.__name__

        with pytest.raises(StepExists, match="exists already"):
            make(root, place, progress=lambda _, place=place: place.write_bytes(b"theirs"))

        assert place.read_bytes() == b"theirs"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export_file", "export_folder"]


def test_an_export_that_fails_leaves_nothing(root, tmp_path):
    with pytest.raises(StorageFailure, match=r"could not be written"):
        export_folder(root, tmp_path / "out", beside={"model.safetensors": b"taken already"})

    assert list(tmp_path.iterdir()) == []


def test_no_tensor_or_one_without_a_word_for_it_is_refused(tmp_path):
    root = f"memory://{tmp_path.name}"
    mc.save(root, {"model": {"z": np.ones(2, np.complex128)}, "epoch": 1}, step=1)

    with pytest.raises(OptionInvalid, match=r"no tensor in 'epoch'; its parts are model, epoch. Nothing was written"):
        export_file(root, tmp_path / "w", parts="epoch")
    with pytest.raises(UnsupportedType, match=r"model.z is complex128, which a safetensors file has no word for"):
        export_file(root, tmp_path / "w")
    assert list(tmp_path.iterdir()) == []


def test_what_is_exported_is_on_the_medium_before_it_has_its_name(root, tmp_path, monkeypatch):
    flushed, flush = [], os.fsync

    def noted(fd):
        place = os.readlink(f"/proc/self/fd/{fd}")
        flushed.append(("its folder" if place == str(tmp_path) else Path(place).suffix, (tmp_path / "out").exists()))
        flush(fd)

    monkeypatch.setattr(os, "fsync", noted)
    export_folder(root, tmp_path / "out")

    assert flushed == [(".safetensors", False), (".part", False), ("its folder", True)]
