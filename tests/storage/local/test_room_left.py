"""The room left is the file system's, what is reserved has its size, and a file that fails keeps no descriptor."""

import errno
import os

import pytest

from model_checkpoint.errors import StorageFailure
from model_checkpoint.storage import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls


class Unflushable(Syscalls):
    """A disk that stops to flush files when told so."""

    broken = False

    def fsync(self, fd):
        if self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fsync(fd)


@pytest.mark.parametrize("made", [False, True], ids=["no root yet", "root"])
def test_the_room_left_is_what_the_file_system_gives_an_ordinary_user(tmp_path, made):
    if made:
        (tmp_path / "runs").mkdir()
    before = os.statvfs(tmp_path)

    free = LocalStore(tmp_path / "runs").free_bytes()

    assert free == pytest.approx(before.f_bavail * before.f_frsize, rel=0.05)


def test_room_that_is_reserved_is_the_files_at_once_and_no_byte_more(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        try:
            Syscalls().fallocate(file.fileno(), 1 << 16)
        except OSError as error:
            pytest.skip(f"no room can be reserved here: {error}")
        info = os.fstat(file.fileno())

    assert info.st_size == 1 << 16
    assert info.st_blocks * 512 >= 1 << 16


@pytest.mark.fault
def test_a_file_of_another_that_cannot_be_flushed_leaves_no_descriptor(tmp_path):
    calls = Unflushable()
    attempt = LocalStore(tmp_path / "runs", calls=calls).stage("step-1", "a1")
    with open(f"{attempt.room()}/theirs", "wb") as file:
        file.write(b"abc")
    before = len(os.listdir("/proc/self/fd"))
    calls.broken = True

    with pytest.raises(StorageFailure, match="could not be taken into the stage"):
        attempt.adopt("theirs", "x-a1")

    assert len(os.listdir("/proc/self/fd")) == before
    calls.broken = False
    attempt.abort()
