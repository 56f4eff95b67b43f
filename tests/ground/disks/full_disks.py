"""Full disks: small file systems of their own without one free block or inode."""

import contextlib
import os

import pytest

from tests.ground.disks.power import Disk, PowerUnavailable
from tests.ground.requirements import without_power

MIB = 1 << 20


@contextlib.contextmanager
def mounted(folder, kind, **options):
    try:
        disk = Disk(folder, kind, **options)
    except PowerUnavailable as error:
        without_power(str(error))
    try:
        yield disk.mount_point
    finally:
        disk.unmount()


def fill_blocks(mount_point):
    """Take every block, the last one byte by byte."""
    fd = os.open(mount_point / "ballast", os.O_WRONLY | os.O_CREAT)
    end = 0
    for piece in (64 * MIB, MIB, 64 * 1024, 4096, 512):
        with contextlib.suppress(OSError):
            while True:
                os.posix_fallocate(fd, end, piece)
                end += piece
    os.fsync(fd)
    os.close(fd)
    with contextlib.suppress(OSError):
        for number in range(1000):  # also what a file system keeps for folders
            (mount_point / f"folder-{number}").mkdir()


def fill_inodes(mount_point):
    with contextlib.suppress(OSError):
        for number in range(100_000):
            (mount_point / f"file-{number}").touch()


FULL_DISKS = {
    "ext4 blocks": ("ext4", {"nbytes": 8 * MIB}, fill_blocks),
    "ext4 inodes": ("ext4", {"nbytes": 8 * MIB, "flags": ("-N", "64")}, fill_inodes),
    "xfs blocks": ("xfs", {}, fill_blocks),
}


def full_disk_of(disks):
    """A fixture: where each of ``disks`` is mounted, and what fills it."""

    @pytest.fixture(params=disks)
    def full_disk(request, tmp_path):
        kind, options, fill = disks[request.param]
        with mounted(tmp_path, kind, **options) as mount_point:
            yield mount_point, fill

    return full_disk
