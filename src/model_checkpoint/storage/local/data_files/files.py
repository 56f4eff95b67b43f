"""Local files: one data file being written or read.

Writing goes around the page cache where the file system lets it, and through it elsewhere. Each file is flushed
exactly once: after a failed flush the kernel may report success for bytes it has dropped, so there is no second try.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from model_checkpoint.storage.contract.failures import (
    FULL,
    UNSUPPORTED,
    ended,
    file_gone,
    misused,
    require_within,
    sealed_size,
    typed,
    typed_errors,
)
from model_checkpoint.storage.local.data_files.direct_reads import ALIGNMENT as DIRECT_ALIGNMENT
from model_checkpoint.storage.local.data_files.direct_reads import NO_DIRECT, go_direct, read_direct
from model_checkpoint.storage.local.paths import decode_manifest, free_bytes, let_go, log, open_regular
from model_checkpoint.storage.local.syscalls import Syscalls

_LOCAL_FILESYSTEMS = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # xfs
        0x9123683E,  # btrfs
        0x01021994,  # tmpfs
        0x858458F6,  # ramfs
        0xF2F52010,  # f2fs
        0x2FC12FC1,  # zfs
        0xCA451A4E,  # bcachefs
        0x794C7630,  # overlayfs
    }
)


_DIRECT_BYTES = 8 << 10  # what is smaller is sooner on the medium through the page cache, and fills hardly any of it


def is_local(calls: Syscalls, fd: int) -> bool:
    """Whether the file system belongs to this machine alone; one we do not know counts as shared."""
    return calls.filesystem(fd) in _LOCAL_FILESYSTEMS


class DirectIO:
    """Whether files of one device go around the page cache; what a device refused is remembered and logged once."""

    def __init__(self, calls: Syscalls, device: int, *, wanted: bool) -> None:
        self._calls, self._device, self.wanted = calls, device, wanted

    @property
    def usable(self) -> bool:
        """Whether it is wanted and was not refused."""
        return self.wanted and self._device not in self._calls.without_direct

    def give_up(self, where: str) -> None:
        """Remember the refusal."""
        if self.usable:
            self._calls.without_direct.add(self._device)
            log.warning("%s: this file system has no direct I/O; writing through the page cache", where)


def create_writer(calls: Syscalls, path: str, size: int, *, direct: DirectIO, beat: Callable[[], None]) -> LocalWriter:
    """Create ``path``, reserve its bytes, and return its writer."""
    with typed_errors(path, "could not create the file", room=lambda: (size, free_bytes(calls, path))):
        fd = calls.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    writer = LocalWriter(calls, path, fd, size=size, direct=direct, beat=beat)
    try:
        writer.prepare()
    except BaseException:
        writer.give_up()
        raise
    return writer


class LocalWriter:
    """One data file being written; see :class:`model_checkpoint.storage.contract.store.Writer`."""

    def __init__(
        self, calls: Syscalls, path: str, fd: int, *, size: int, direct: DirectIO, beat: Callable[[], None]
    ) -> None:
        self._calls, self._path, self._fd, self._size = calls, path, fd, size
        self._direct, self._beat = direct, beat
        self.around_cache = False
        self._unit = 1
        self._written, self._counting = 0, threading.Lock()
        self._open = True
        self.sealed = False

    @property
    def alignment(self) -> int:
        """4096 around the page cache, 1 through it; stays as it was found, even if direct I/O is refused later."""
        return self._unit

    @property
    def _padded(self) -> int:
        return -(-self._size // self.alignment) * self.alignment

    def prepare(self) -> None:
        """Choose the way to the medium, then reserve the bytes."""
        with typed_errors(self._path, "could not prepare the file"):
            if self._direct.usable and self._size >= _DIRECT_BYTES:
                self._try_direct()
        if self._size:
            self._reserve()

    def _try_direct(self) -> None:
        try:
            self._calls.set_direct(self._fd, True)
            self.around_cache = True
            self._unit = DIRECT_ALIGNMENT
        except OSError as error:
            if error.errno not in NO_DIRECT:
                raise
            self._direct.give_up(self._path)

    def _reserve(self) -> None:
        """Learn about a full disk before the first byte is written."""
        try:
            self._calls.fallocate(self._fd, self._padded)
        except OSError as error:
            with typed_errors(self._path, "could not ask for the room left"):
                free = free_bytes(self._calls, self._path)
            if error.errno in FULL or (error.errno in UNSUPPORTED and free < self._padded):
                full = OSError(error.errno if error.errno in FULL else errno.ENOSPC, "no room")
                doing = f"could not reserve {self._size} bytes"
                raise typed(full, self._path, doing, needed=self._size, free=free) from error
            if error.errno not in UNSUPPORTED:
                raise typed(error, self._path, f"could not reserve {self._size} bytes") from error

    def write(self, offset: int, data: memoryview) -> None:
        """Write all of ``data`` at ``offset``."""
        view = memoryview(data).cast("B")
        self._check(offset, len(view))
        self._beat()
        done = 0
        with typed_errors(self._path, f"could not write {len(view)} bytes at {offset}", room=self._room):
            while done < len(view):
                done += self._write_some(view[done:], offset + done)
            if not self.around_cache:
                with suppress(OSError):  # only a hint: the flush in seal is what counts
                    self._calls.start_writeback(self._fd, offset, len(view))
        with self._counting:
            self._written += len(view)

    def _room(self) -> tuple[int, int]:
        return self._size - self._written, free_bytes(self._calls, self._path)

    def _check(self, offset: int, length: int) -> None:
        require_within(self._path, offset, length, announced=self._size, room=self._padded, still_open=self._open)
        if self.around_cache and (offset | length) % DIRECT_ALIGNMENT:
            raise misused(self._path, f"offset {offset} and length {length} must be multiples of {DIRECT_ALIGNMENT}")

    def _write_some(self, view: memoryview, offset: int) -> int:
        """Write once; around the cache only whole blocks count, since the next write must be aligned again."""
        try:
            count = self._calls.pwrite(self._fd, view, offset)
        except OSError as error:
            if error.errno not in NO_DIRECT or not self.around_cache:
                raise
            self._direct.give_up(self._path)
            self._calls.set_direct(self._fd, False)
            count = self._calls.pwrite(self._fd, view, offset)
        count -= count % self.alignment
        if count <= 0:
            raise OSError(errno.EIO, "the system wrote nothing and gave no reason")
        return count

    def seal(self, size: int | None = None) -> None:
        """Cut to ``size``, or to the announced size, flush, close. Never tried twice."""
        final = sealed_size(self._path, size, announced=self._size, written=self._written, still_open=self._open)
        self._beat()
        try:
            with typed_errors(self._path, "could not be flushed to the medium", room=self._room):
                self._calls.ftruncate(self._fd, final)
                self._calls.fsync(self._fd)
                self._spare_cache()
                self._open = False
                self._calls.close(self._fd)
        except BaseException:
            self.give_up()
            raise
        self.sealed = True

    def _spare_cache(self) -> None:
        """Where direct I/O was wanted and refused, at least do not push other files out of memory."""
        if self._direct.wanted and not self._direct.usable:
            with suppress(OSError):  # only advice
                self._calls.drop_cache(self._fd)

    def give_up(self) -> None:
        """Close without a promise."""
        if self._open:
            self._open = False
            let_go(self._calls, self._fd)


def open_reader(calls: Syscalls, folder: str, file: str, *, direct: bool) -> LocalReader:
    """Open one data file of a checkpoint; with ``direct``, a cold one is read around the page cache."""
    with typed_errors(folder, f"could not read {file}"):
        try:
            fd, info = open_regular(calls, folder, file)
        except FileNotFoundError as error:
            raise file_gone(folder, file, listed=_is_listed(calls, folder, file)) from error
        try:
            around = direct and is_local(calls, fd) and go_direct(calls, fd, info.st_size)
        except BaseException:
            let_go(calls, fd)
            raise
    return LocalReader(calls, fd, size=info.st_size, around_cache=around, folder=folder, file=file)


def flushed_reader(calls: Syscalls, folder: str, file: str) -> LocalReader:
    """Flush a file that somebody else has written, and open it to see what the medium has."""
    fd, info = open_regular(calls, folder, file)
    try:
        calls.fsync(fd)
    except BaseException:
        let_go(calls, fd)
        raise
    return LocalReader(calls, fd, size=info.st_size, around_cache=False, folder=folder, file=file)


def _is_listed(calls: Syscalls, folder: str, file: str) -> bool | None:
    """Whether the manifest in place lists ``file``; None if there is none."""
    try:
        manifest = decode_manifest(calls, folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return manifest is None or file in manifest.file_names


class LocalReader:
    """One open data file; see :class:`model_checkpoint.storage.contract.store.Reader`."""

    def __init__(self, calls: Syscalls, fd: int, *, size: int, around_cache: bool, folder: str, file: str) -> None:
        self._calls, self._fd, self._size = calls, fd, size
        self._folder, self._file = folder, file
        self.around_cache = around_cache
        self._open = True

    @property
    def size(self) -> int:
        """Bytes in the file when it was opened."""
        return self._size

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset``."""
        view = memoryview(buffer).cast("B")
        if not view:
            return
        try:  # not typed_errors: what runs between two chunks of a load adds up
            done = self._read(offset, view)
        except OSError as error:
            raise typed(error, self._folder, f"could not read {self._file}") from error
        if done < len(view):
            wanted = range(offset, offset + len(view))
            raise ended(self._folder, self._file, wanted=wanted, end=offset + done)

    def _read(self, offset: int, view: memoryview) -> int:
        """Read around the cache as long as the system lets us, else through it; return how much there was."""
        if self.around_cache:
            try:
                return read_direct(self._calls, self._fd, offset, view)
            except OSError as error:
                if error.errno not in NO_DIRECT:
                    raise
                log.debug("%s/%s: direct reads are refused, reading through the page cache", self._folder, self._file)
                self.go_through_cache()
        done = 0
        while done < len(view):
            count = self._calls.preadv(self._fd, view[done:], offset + done)
            if count <= 0:
                break
            done += count
        return done

    def go_through_cache(self) -> None:
        """Leave what is read from now on in the page cache."""
        if self.around_cache:
            with typed_errors(self._folder, f"could not read {self._file}"):
                self._calls.set_direct(self._fd, False)
            self.around_cache = False

    def map(self) -> memoryview | None:
        """The whole file as a private map; None where another machine could cut the file under it."""
        if self._size == 0:
            return memoryview(b"")
        with typed_errors(self._folder, f"could not read {self._file}"):
            if not is_local(self._calls, self._fd):
                return None
            self.go_through_cache()  # as the map does: what is read besides shall fill it
            return self._calls.mmap(self._fd, self._size)

    def close(self) -> None:
        """Let go of the file; a map stays valid."""
        if self._open:
            self._open = False
            let_go(self._calls, self._fd)
