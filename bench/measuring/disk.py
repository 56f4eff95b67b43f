"""Disk: clean starts for every operation, and the best this disk does with no library in the way."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bench.measuring.measure import MIB, Sample, measure
from model_checkpoint.flushing import flush

_SLABS = (1 * MIB, 4 * MIB, 16 * MIB, 32 * MIB)
_THREADS = (1, 2, 4, 8)
_DROP = Path("/proc/sys/vm/drop_caches")
_DIRECT = getattr(os, "O_DIRECT", 0)


def empty(folder: Path) -> None:
    """Make ``folder`` empty and let the disk come to rest, so that no one pays for the one before."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.sync()


def flush_tree(folder: Path) -> None:
    """Make every file and folder below ``folder`` durable."""
    for path in [*folder.rglob("*"), folder]:
        flush(path)


def chill(folder: Path) -> None:
    """Let the page cache forget the files of ``folder``: all of it as root, else file by file."""
    os.sync()
    for path in _files(folder):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    if os.access(_DROP, os.W_OK):
        _DROP.write_text("1")


def warm(folder: Path) -> None:
    """Read every file of ``folder`` once, so that it is in the page cache."""
    buffer = bytearray(4 * MIB)
    for path in _files(folder):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def read_share(folder: Path, part: int, parts: int) -> None:
    """Read one of ``parts`` of all bytes below ``folder`` around the page cache, slab by slab, and keep nothing.

    However few the parts are, the disk has as much to do at once as it does best with; a short read is an error.
    """
    slabs = [(path, at) for path in _files(folder) for at in _starts(path)][part::parts]
    threads = max(1, _THREADS[-1] // parts)

    def work(number: int) -> None:
        buffer = _huge(_SLABS[1])
        for path, at in slabs[number::threads]:
            fd = os.open(path, os.O_RDONLY | _DIRECT)
            count, wanted = os.preadv(fd, [buffer], at), min(len(buffer), path.stat().st_size - at)
            os.close(fd)
            if count != wanted:
                raise OSError(f"{path}: read {count} of {wanted} bytes at {at}")

    with ThreadPoolExecutor(threads) as team:
        list(team.map(work, range(threads)))


def _huge(size: int) -> memoryview:
    """Memory in large pages, as that of large tensors is: into small ones a disk brings half as much in the time."""
    room = mmap.mmap(-1, 2 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    room.madvise(mmap.MADV_HUGEPAGE)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % size
    room[start : start + size] = bytes(size)
    return memoryview(room)[start : start + size]


def _starts(path: Path) -> range:
    return range(0, path.stat().st_size, _SLABS[1])


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@dataclass(frozen=True, slots=True)
class Way:
    """How to move bytes: slab size, threads, and around the page cache or through it."""

    slab: int
    threads: int
    direct: bool

    def __str__(self) -> str:
        return f"{self.slab // MIB} MiB x {self.threads} threads, {'O_DIRECT' if self.direct else 'buffered'}"


class RawDisk:
    """Plain durable writes and cold reads of one file, the fastest way probed first."""

    def __init__(self, folder: Path, nbytes: int) -> None:
        self.folder, self.nbytes = folder, nbytes - nbytes % _SLABS[-1] + _SLABS[-1]
        self.writes, self.reads = Way(_SLABS[0], 1, True), [Way(_SLABS[0], 1, True)]

    def probe(self) -> None:
        """Try every way on part of the size, twice, and keep the fastest for writing and for reading."""
        full, self.nbytes = self.nbytes, min(self.nbytes, 256 * MIB)
        writes: dict[Way, float] = {}
        reads: dict[Way, float] = {}
        for slab, threads in [*product(_SLABS, _THREADS)] * 2:
            direct = Way(slab, threads, True)
            writes[direct] = max(writes.get(direct, 0.0), self.write(direct).speed)
            for way in (direct, Way(slab, threads, False)):
                reads[way] = max(reads.get(way, 0.0), self.read(way).speed)
        self.nbytes = full
        self.writes = max(writes, key=writes.__getitem__)
        kinds = [[way for way in reads if way.direct is direct] for direct in (True, False)]
        self.reads = [max(kind, key=reads.__getitem__) for kind in kinds]  # which is faster depends on the size

    def write(self, way: Way | None = None) -> Sample:
        """Write the file anew and flush it."""
        way = way or self.writes
        empty(self.folder)
        buffers = _buffers(way)

        def run() -> None:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | (_DIRECT if way.direct else 0))
            os.posix_fallocate(fd, 0, self.nbytes)
            _share(range(0, self.nbytes, way.slab), buffers, lambda at, buffer: os.pwrite(fd, buffer, at))
            os.fsync(fd)
            os.close(fd)

        return measure(run, self.nbytes)

    def read(self, way: Way | None = None) -> Sample:
        """Read the file, cold; without a ``way`` the fastest of those probed."""
        if way is None:
            return max((self.read(one) for one in self.reads), key=lambda sample: sample.speed)
        chill(self.folder)
        buffers = _buffers(way)

        def run() -> None:
            fd = os.open(self._path, os.O_RDONLY | (_DIRECT if way.direct else 0))
            _share(range(0, self.nbytes, way.slab), buffers, lambda at, buffer: os.preadv(fd, [buffer], at))
            os.close(fd)

        return measure(run, self.nbytes)

    @property
    def _path(self) -> Path:
        return self.folder / "raw"


def _buffers(way: Way) -> list[mmap.mmap]:
    """One page-aligned buffer per thread, full of bytes no layer below can compress."""
    noise = os.urandom(MIB)
    buffers = [mmap.mmap(-1, way.slab) for _ in range(way.threads)]
    for buffer in buffers:
        for start in range(0, way.slab, MIB):
            buffer[start : start + MIB] = noise
    return buffers


def _share(offsets: range, buffers: list[mmap.mmap], move: Callable[[int, mmap.mmap], int]) -> None:
    """Let one thread per buffer move every n-th slab; a short call is an error."""
    threads = len(buffers)

    def work(number: int) -> None:
        for at in offsets[number::threads]:
            count = move(at, buffers[number])
            if count != len(buffers[number]):
                raise OSError(f"raw disk: moved {count} of {len(buffers[number])} bytes at {at}")

    with ThreadPoolExecutor(threads) as team:
        list(team.map(work, range(threads)))
