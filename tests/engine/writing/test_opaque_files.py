"""Files a backend wrote are kept whole, under safe names, and given back as they were laid out."""

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.ground.stored.stored_files import flip

import model_checkpoint as mc
from model_checkpoint.engine.reading.opaque_load import load_opaque, written_by
from model_checkpoint.engine.root.backend_files import files_of_backend
from model_checkpoint.engine.writing import opaque_save
from model_checkpoint.engine.writing.opaque_save import save_opaque
from model_checkpoint.errors import (
    ChunkMismatch,
    ManifestInvalid,
    NothingWritten,
    StepExists,
    UnsafeName,
    WrongReference,
)
from model_checkpoint.manifest import decode, pack, unpack
from model_checkpoint.storage.locate import open_store

FILES = {
    "checkpoint/weights.bin": bytes(range(256)) * 3,
    "checkpoint/deep/er/weights.bin": b"deep",
    "checkpoint/empty": b"",
    "void": b"",
    "Beside": b"one",
    "beside": b"two",
    ".hidden": b"three",
    "manifest.json": b"four",
    "file-0": b"five",
}


def write(files):
    def save(path):
        for name, data in files.items():
            place = Path(path).parent / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)

    return save


def read(path):
    home = Path(path).parent
    return {str(one.relative_to(home)): one.read_bytes() for one in sorted(home.rglob("*")) if one.is_file()}


@pytest.fixture(params=["folder", "memory"])
def root(request, tmp_path):
    return str(tmp_path / "root") if request.param == "folder" else f"memory://{tmp_path.name}"


@pytest.mark.parametrize("chunk", [1 << 22, 100, 256])
@pytest.mark.parametrize("files", [FILES, {"checkpoint": b"x" * 700}, {"Beside": b"1", "file-0": b"2", "void": b""}])
def test_any_layout_of_files_comes_back(root, monkeypatch, chunk, files):
    monkeypatch.setattr(opaque_save, "_CHUNK", chunk)

    info = save_opaque(root, write(files), backend="mine", step=4, metrics={"loss": 0.5}, metadata={"k": 1})

    found = load_opaque(root, info.prefix, read)
    assert {name: data for name, data in found.items() if name in files or name != "manifest.json"} == files
    assert info.size_bytes == sum(map(len, files.values()))
    assert (info.step, dict(info.metrics)) == (4, {"loss": 0.5})
    assert info.format.value == ("single_file" if len(files) == 1 else "multi_shard")
    assert [report.ok for report in mc.verify(root)] == [True]
    assert written_by(open_store(root), info.prefix).backend == "mine"
    assert all(len(name) < 40 and not name.startswith(".") for name in open_store(root).files(info.prefix))
    assert all(open_store(root).files(info.prefix).values())  # what has no bytes is remembered, not stored


def test_a_changed_byte_is_never_given_back(tmp_path, monkeypatch):
    monkeypatch.setattr(opaque_save, "_CHUNK", 100)
    info = save_opaque(tmp_path, write({"checkpoint": b"x" * 700}), backend="mine", step=1)
    place = Path(info.path, "checkpoint")
    flip(place, 250)

    for full in (True, False):
        with pytest.raises(ChunkMismatch, match=r"checkpoint: chunk 2 \(bytes 200 to 300\)") as told:
            load_opaque(tmp_path, info.prefix, lambda path: pytest.fail("it was read"), full=full)
        assert (told.value.file, told.value.chunk) == ("checkpoint", 2)


@pytest.mark.parametrize(("files", "made"), [({}, "nothing"), ({"a": b"", "b": b""}, "only empty files: a, b")])
def test_a_backend_that_wrote_no_byte_has_saved_nothing(root, files, made):
    with pytest.raises(NothingWritten, match=rf"backend mine wrote {made} at the path it was given \(.../checkpoint\)"):
        save_opaque(root, write(files), backend="mine", step=1)

    assert open_store(root).names() == []


def test_what_is_no_file_is_refused(root):
    with pytest.raises(UnsafeName, match=r"the backend made 'pipe', which is neither a file nor a folder"):
        save_opaque(root, lambda path: os.mkfifo(Path(path).with_name("pipe")), backend="mine", step=1)

    assert open_store(root).names() == []


def test_a_name_that_is_taken_is_refused_before_the_backend_writes(root):
    save_opaque(root, write({"checkpoint": b"1"}), backend="mine", step=1)

    with pytest.raises(StepExists, match="step-00000001"):
        save_opaque(root, lambda path: pytest.fail("it wrote"), backend="mine", step=1)


def test_what_a_backend_raises_comes_through_and_leaves_no_stage(root, tmp_path):
    def fail(path):
        write({"checkpoint": b"1"})(path)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        save_opaque(root, fail, backend="mine", step=1)
    assert open_store(root).names() == []
    assert not any(path.is_file() for path in tmp_path.rglob("checkpoint"))


def test_what_the_engine_wrote_is_no_backends(root):
    info = mc.save(root, {"w": np.ones(2)}, step=1)

    assert written_by(open_store(root), info.prefix) is None
    with pytest.raises(WrongReference, match=r"was written by the engine itself. Load it with mc.load"):
        load_opaque(root, info.prefix, read)


@pytest.mark.parametrize("path", ["../x", "a/../x", "/etc/x", "", "a//x", "./x", "a\0b", "a/"])
@pytest.mark.parametrize("place", ["file", "paths", "empty"])
def test_a_manifest_that_names_a_file_outside_its_folder_is_refused(root, place, path):
    info = save_opaque(root, write({"checkpoint": b"1"}), backend="mine", step=4)
    manifest = decode(open_store(root).read_manifest(info.prefix), "here")
    inside = unpack(manifest.tree)
    assert files_of_backend(manifest, "here").backend == "mine"

    forged = {"file": path, "paths": dict.fromkeys(inside["paths"], path), "empty": [path]}[place]
    spoilt = msgspec.structs.replace(manifest, tree=pack({**inside, place: forged}))

    with pytest.raises(ManifestInvalid, match=r"^here: the manifest names a file .* outside of its folder"):
        files_of_backend(spoilt, "here")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"paths": {}}, "names other files of its backend than it has digests of"),
        ({"paths": {"file-9": "checkpoint"}}, "names other files of its backend than it has digests of"),
        ({"paths": 3}, "says of its backend what cannot be read"),
        ({"backend": None}, "says of its backend what cannot be read"),
    ],
)
def test_a_manifest_that_tells_of_other_files_than_it_has_is_refused(root, change, problem):
    info = save_opaque(root, write({"checkpoint": b"1"}), backend="mine", step=4)
    manifest = decode(open_store(root).read_manifest(info.prefix), "here")
    spoilt = msgspec.structs.replace(manifest, tree=pack({**unpack(manifest.tree), **change}))

    with pytest.raises(ManifestInvalid, match=rf"^here: the manifest {problem}"):
        files_of_backend(spoilt, "here")
