"""Bytes in files under a folder: whole or not at all, on the disk before the call returns, never outside."""

import os

import pytest

from model_checkpoint.distributed import FolderStorage
from model_checkpoint.errors import OptionInvalid


@pytest.fixture
def flushed(monkeypatch):
    """What is flushed, by whether it is a folder, with the size it has then."""
    seen, fsync = [], os.fsync

    def note(handle):
        stat = os.fstat(handle)
        seen.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else stat.st_size)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    return seen


def test_bytes_and_their_name_are_on_the_disk_when_a_call_returns(tmp_path, flushed):
    storage = FolderStorage(tmp_path / "deep")
    open_files = len(os.listdir("/proc/self/fd"))

    storage.write("a/b", b"first")
    assert flushed == [5, "folder"]
    storage.write("a/b", bytearray(b"second"))
    assert storage.create("a/c", memoryview(b"third")) is True
    assert flushed == [5, "folder", 6, "folder", 5, "folder"]

    assert storage.create("a/c", b"never") is False
    assert (storage.read("a/b"), storage.read("a/c")) == (b"second", b"third")
    assert sorted(os.listdir(tmp_path / "deep" / "a")) == ["b", "c"]
    assert len(os.listdir("/proc/self/fd")) == open_files


@pytest.mark.parametrize(
    ("start", "stop", "data"),
    [
        (0, None, b"abcdef"),
        (0, 6, b"abcdef"),
        (2, None, b"cdef"),
        (2, 4, b"cd"),
        (2, 3, b"c"),
        (4, 99, b"ef"),
        (3, 3, b""),
        (4, 2, b""),
        (9, None, b""),
    ],
)
def test_any_range_of_bytes_is_read(tmp_path, start, stop, data):
    storage = FolderStorage(tmp_path)
    storage.write("a", b"abcdef")

    assert storage.read("a", start, stop) == data
    assert storage.read("a", start=start) == b"abcdef"[start:]
    assert storage.get_metadata("a").size == 6


def test_drafts_and_other_folders_are_not_listed(tmp_path):
    storage = FolderStorage(tmp_path)
    for path in ("a/b/c", "a/d", "e"):
        storage.write(path, b"")
    (tmp_path / "a" / ".draft-1").touch()

    assert sorted(storage.list("")) == ["a/b/c", "a/d", "e"]
    assert sorted(storage.list("a/")) == ["a/b/c", "a/d"]
    assert [storage.exists(path) for path in ("a/b/c", "a/b", "f")] == [True, False, False]
    storage.delete("a/d")
    storage.delete("a/d")
    assert sorted(storage.list("a/")) == ["a/b/c"]


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", ".", "a/./b", "..", "a/../b", "a\0b", "a\\b", None, 3])
def test_what_is_no_path_within_the_folder_is_refused(tmp_path, path):
    storage = FolderStorage(tmp_path)

    for ask in (storage.read, storage.exists, storage.delete, storage.get_metadata, lambda at: storage.write(at, b"")):
        with pytest.raises(OptionInvalid, match="is no path within the storage"):
            ask(path)
    assert list(storage.list("")) == []


def test_what_is_no_bytes_is_refused_and_what_fails_leaves_no_draft(tmp_path, monkeypatch):
    storage = FolderStorage(tmp_path)

    def fail(handle):
        raise OSError(5, "I/O error")

    for call in (storage.write, storage.create):
        with pytest.raises(OptionInvalid, match="expected bytes, got str"):
            call("a", "text")
    assert os.listdir(tmp_path) == []
    monkeypatch.setattr(os, "fsync", fail)
    for call in (storage.write, storage.create):
        with pytest.raises(OSError, match="I/O error"):
            call("a", b"bytes")
    assert os.listdir(tmp_path) == []
