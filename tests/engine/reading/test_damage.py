"""Whatever happens to the bytes on the medium, a load gives exactly what was saved or refuses with an address."""

import os
import shutil
from bisect import bisect_right

import numpy as np
import pytest
from tests.ground.stored.stored_files import data_file, flip, folder

import model_checkpoint as mc
from model_checkpoint import errors
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader
from model_checkpoint.engine.root.listing import load_manifest
from model_checkpoint.storage.locate import open_store

STATE = {"model": {"w": np.arange(200, dtype=np.float32), "b": np.arange(7, dtype=np.int8)}, "epoch": 3}


def refused(root):
    with pytest.raises(errors.CorruptedCheckpoint, match=r"step-00000001") as caught:
        mc.load(root)
    return caught.value


def flipped(path, bits):
    """Yield each bit while it is flipped on the medium."""
    good = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for bit in bits:
            os.pwrite(file.fileno(), bytes([good[bit // 8] ^ (1 << (bit % 8))]), bit // 8)
            yield bit
            os.pwrite(file.fileno(), good[bit // 8 : bit // 8 + 1], bit // 8)


def cut(path, lengths):
    """Yield each length, the longest first, while the file has it; nothing is written."""
    for length in sorted(lengths, reverse=True):
        os.truncate(path, length)
        yield length


def test_every_flipped_bit_of_the_data_file_is_found_by_the_reader_of_chunks(tmp_path):
    """All loads go through this reader; the next test flips fewer bits and loads."""
    mc.save(tmp_path, STATE, step=1)
    path, store = data_file(tmp_path), open_store(tmp_path)
    manifest = load_manifest(store, "step-00000001")
    ends = manifest.files[0].ends

    with ChunkReader(store, manifest, full=False) as medium:
        for bit in flipped(path, range(path.stat().st_size * 8)):
            chunk = bisect_right(ends, bit // 8)
            room = bytearray(ends[chunk] - (ends[chunk - 1] if chunk else 0))
            with pytest.raises(errors.ChunkMismatch, match="recorded digest") as caught:
                medium.read_chunk(0, chunk, memoryview(room))
            assert (caught.value.file, caught.value.chunk) == (path.name, chunk)
            assert bool(caught.value.tensor) == (chunk > 0)


def test_a_flipped_bit_anywhere_in_the_data_file_is_refused_with_file_tensor_and_chunk(tmp_path):
    mc.save(tmp_path, STATE, step=1)
    path = data_file(tmp_path)

    for bit in flipped(path, range(0, path.stat().st_size * 8, 61)):  # a prime, so that every place in a byte comes up
        error = refused(tmp_path)
        assert error.file == path.name
        assert error.chunk == (0 if bit < 4096 * 8 else 1)
        assert error.chunk == 0 or error.tensor


@pytest.mark.slow
def test_every_truncation_and_extension_is_refused(tmp_path):
    mc.save(tmp_path, STATE, step=1)
    path = data_file(tmp_path)
    good = path.read_bytes()

    for _ in cut(path, range(len(good))):
        assert isinstance(refused(tmp_path), errors.Truncated)
    path.write_bytes(good + b"\0")
    assert isinstance(refused(tmp_path), errors.TrailingData)
    path.unlink()
    assert isinstance(refused(tmp_path), errors.Truncated)


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_every_flipped_bit_of_the_manifest_is_refused(tmp_path, stride):
    mc.save(tmp_path, STATE, step=1)
    path = folder(tmp_path) / "manifest.json"

    for _ in flipped(path, range(0, path.stat().st_size * 8, stride)):
        refused(tmp_path)


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_every_truncation_of_the_manifest_is_refused(tmp_path, stride):
    mc.save(tmp_path, STATE, step=1)
    path = folder(tmp_path) / "manifest.json"
    good = path.read_bytes()

    for _ in cut(path, range(0, len(good), stride)):
        refused(tmp_path)
    path.write_bytes(good + b"\n")
    refused(tmp_path)


def test_two_swapped_chunks_are_refused(tmp_path):
    mc.save(tmp_path, {"w": np.arange(4 << 20, dtype=np.float32)}, step=1)
    path = data_file(tmp_path)
    data = bytearray(path.read_bytes())
    size = 4 << 20
    first, second = data[4096 : 4096 + size], data[4096 + size : 4096 + 2 * size]
    data[4096 : 4096 + 2 * size] = second + first
    path.write_bytes(data)

    error = refused(tmp_path)

    assert isinstance(error, errors.ChunkMismatch)
    assert error.tensor == "w"
    assert error.chunk in (1, 2)


def test_a_file_replaced_by_an_older_one_of_the_same_shape_is_refused(tmp_path):
    mc.save(tmp_path / "old", STATE, step=1)
    mc.save(tmp_path / "new", {"model": {"w": STATE["model"]["w"] + 1, "b": STATE["model"]["b"]}, "epoch": 4}, step=1)
    shutil.copy(data_file(tmp_path / "old"), data_file(tmp_path / "new"))

    assert isinstance(refused(tmp_path / "new"), errors.ChunkMismatch)


def test_verify_lists_all_damage_at_once_and_load_falls_back(tmp_path, caplog):
    mc.save(tmp_path, {"a": np.zeros(3 << 20), "b": np.ones(3 << 20)}, step=1)
    mc.save(tmp_path, {"a": np.zeros(3 << 20), "b": np.ones(3 << 20)}, step=2)
    path = data_file(tmp_path, 2)
    flip(path, 5000, -1)

    newest, older = mc.verify(tmp_path)
    with pytest.warns(mc.CheckpointWarning, match=r"step-00000002: ChunkMismatch, .*chunk 1, tensor a"):
        state = mc.load(tmp_path, fallback=True)

    assert older.ok
    assert [(d.chunk, list(d.tensors)) for d in newest.damage] == [(1, ["a"]), (12, ["b"])]
    assert np.array_equal(state["b"], np.ones(3 << 20))
    assert f"falling back to {tmp_path}/checkpoints/step-00000001" in caplog.text


def test_sha256_catches_what_xxh3_is_not_asked_about(tmp_path):
    """verify="full" reads the same chunks but compares both digests."""
    mc.save(tmp_path, STATE, step=1)

    assert mc.load(tmp_path, verify="full")["epoch"] == 3


def test_damage_in_a_part_that_is_not_loaded_does_not_matter(tmp_path):
    mc.save(tmp_path, {"a": np.zeros(1 << 20), "b": np.zeros(1 << 20)}, step=1)
    path = data_file(tmp_path)
    flip(path)

    assert mc.load(tmp_path, parts="a")["a"].shape == (1 << 20,)
    with pytest.raises(errors.ChunkMismatch, match="holds tensor b"):
        mc.load(tmp_path, parts="b")


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("/etc/passwd"), os.mkfifo, lambda p: p.mkdir()])
def test_what_is_no_regular_file_is_refused_quickly(tmp_path, make):
    mc.save(tmp_path, STATE, step=1)
    path = data_file(tmp_path)
    path.unlink()
    make(path)

    with pytest.raises(errors.CheckpointException, match="step-00000001"):
        mc.load(tmp_path)
