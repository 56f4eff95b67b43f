"""The way to the medium: direct I/O, room, modes, and what people are told when the system refuses."""

import errno
import logging
import os
import stat

import pytest

from model_checkpoint.errors import DiskFull, PermissionRefused, StorageFailure
from model_checkpoint.storage import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing import Fault, FaultyCalls, Kind
from model_checkpoint.testing.blobs import load_blobs, save_blobs, seal_blob


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "runs")


class WithoutDirect(Syscalls):
    """A file system that refuses direct I/O: when it is asked for, or only at the first write."""

    def __init__(self, *, late):
        super().__init__()
        self.late, self.refused = late, 0
        self.direct = set()

    def set_direct(self, fd, on):
        if on and not self.late:
            self.refused += 1
            raise OSError(errno.EINVAL, "no direct I/O")
        (self.direct.add if on else self.direct.discard)(fd)

    def pwrite(self, fd, data, offset):
        if fd in self.direct:
            self.refused += 1
            raise OSError(errno.EINVAL, "no direct I/O after all")
        return super().pwrite(fd, data, offset)


@pytest.mark.parametrize("late", [False, True])
def test_without_direct_io_it_goes_through_the_cache_and_says_so_once(tmp_path, late, caplog):
    calls = WithoutDirect(late=late)

    with caplog.at_level(logging.WARNING, "model_checkpoint.storage"):
        for step in range(3):  # a new store each time, as a training loop has it
            save_blobs(LocalStore(tmp_path / "runs", calls=calls), f"step-{step}", {"x": b"abc" * 5000, "y": b"y"})

    assert calls.refused == 1
    assert caplog.text.count("this file system has no direct I/O; writing through the page cache") == 1
    assert load_blobs(LocalStore(tmp_path / "runs"), "step-2") == {"x": b"abc" * 5000, "y": b"y"}


def test_direct_io_asks_for_blocks_and_says_so_when_it_does_not_get_them(store):
    writer = store.stage("step-1", "a1").create("x", 50_000)

    if writer.alignment == 1:
        pytest.skip("no direct I/O on this file system")
    assert writer.alignment == 4096
    with pytest.raises(StorageFailure, match=r"offset 0 and length 5000 must be multiples of 4096"):
        writer.write(0, memoryview(bytes(5000)))


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002], ids=oct)
def test_modes_of_all_files_and_folders_follow_the_umask(store, tmp_path, umask):
    """Who may read a checkpoint is decided where the user decides it for every file."""
    before = os.umask(umask)
    try:
        for step in ("step-1", "step-2"):
            save_blobs(store, step, {"x-a": b"abc"})
        save_blobs(store, "step-1", {"x-b": b"abc"}, attempt="b", replace=True, obsolete=["x-a"])
        store.discard("step-2")
        store.stage("step-3", "c").create("x", 1)
    finally:
        os.umask(before)

    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    folders = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "runs").rglob("*") if path.is_dir()}
    assert modes == {0o666 & ~umask}
    assert folders == {0o777 & ~umask}
    assert (tmp_path / "runs/.staging/c.lock").exists()
    assert len(list((tmp_path / "runs/.trash").iterdir())) == 2


def test_every_new_parent_is_flushed_up_to_the_first_that_existed(tmp_path):
    calls = FaultyCalls()

    save_blobs(LocalStore(tmp_path / "deep" / "er" / "runs", calls=calls), "step-1", {})

    flushed = {call.path for call in calls.trace if call.name == "fsync_dir"}
    assert {str(tmp_path), f"{tmp_path}/deep", f"{tmp_path}/deep/er", f"{tmp_path}/deep/er/runs"} <= flushed


# --- errors for people -----------------------------------------------------------------------------------------------


def test_a_full_disk_is_known_before_the_first_byte_with_figures(tiny_disk):
    store = LocalStore(tiny_disk / "runs")
    save_blobs(store, "step-1", {"x": b"abc"})
    stage = store.stage("step-2", "a2")

    with pytest.raises(
        DiskFull, match=r"x: could not reserve 2097152 bytes, .*needs 2097152 bytes, \d+ are free.*gc"
    ) as e:
        stage.create("x", 2 << 20)
    stage.abort()

    assert e.value.needed == 2 << 20
    assert 0 < e.value.free < 1 << 20
    assert e.value.errno == errno.ENOSPC
    assert load_blobs(store, "step-1") == {"x": b"abc"}
    assert list((tiny_disk / "runs/.staging").iterdir()) == []


class WithoutFallocate(Syscalls):
    """A file system that cannot reserve."""

    def fallocate(self, fd, size):
        raise OSError(errno.EOPNOTSUPP, "cannot reserve")


def test_where_nothing_can_be_reserved_the_room_left_is_asked_for(tiny_disk):
    store = LocalStore(tiny_disk / "runs", calls=WithoutFallocate())

    stage = store.stage("step-1", "a1")
    with pytest.raises(DiskFull, match=r"could not reserve 2097152 bytes.*needs 2097152 bytes"):
        stage.create("x", 2 << 20)
    stage.abort()
    save_blobs(store, "step-1", {"x": b"abc"})

    assert load_blobs(store, "step-1") == {"x": b"abc"}


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS], ids=errno.errorcode.get)
def test_a_refusal_of_the_system_says_what_to_check(tmp_path, code):
    calls = FaultyCalls(Fault(kind=Kind.FAIL, at=2, code=code, lasting=True))

    with pytest.raises(PermissionRefused, match=r"could not make the root.*Check owner, mode and mount options"):
        LocalStore(tmp_path / "runs", calls=calls).stage("step-1", "a1")


def test_a_root_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    store = LocalStore(tmp_path / "file" / "runs")

    assert not store.exists()
    with pytest.raises(StorageFailure, match=r"could not make the root \(Not a directory\)"):
        store.stage("step-1", "a1")


def test_an_unaligned_tail_is_cut_to_the_announced_size(store, tmp_path):
    stage = store.stage("step-1", "a1")
    seal_blob(stage, "x", b"z" * 4097)
    stage.publish(b"m")

    assert (tmp_path / "runs/checkpoints/step-1/x").read_bytes() == b"z" * 4097
