"""Syscalls: every system call the storage room makes, one method each.

Nothing else in the room touches the file system, so a test can record, fail or kill any single call by handing the
store another ``Syscalls`` (see ``model_checkpoint.testing.FaultyCalls``). No method retries, guesses or cleans up.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import mmap
import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from model_checkpoint.storage.contract import host

FILE_MODE = 0o666  # the umask decides who may read, as for every other file of the user
FOLDER_MODE = 0o777
DIRECT = getattr(os, "O_DIRECT", 0)

_libc = ctypes.CDLL(None, use_errno=True)
_SYNC_FILE_RANGE_WRITE = 2
_CACHE_PROBES = 64
_HERE = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE


def _foreign(name: str, *types: type[Any]) -> Callable[..., int] | None:
    """A libc function Python has no wrapper for, or None where this system lacks it."""
    function = getattr(_libc, name, None)
    if function is None:
        return None
    function.argtypes = list(types)
    function.restype = ctypes.c_int
    found: Callable[..., int] = function
    return found


_fallocate = _foreign("fallocate", ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_sync_file_range = _foreign("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_mincore = _foreign("mincore", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_fstatfs = _foreign("fstatfs", ctypes.c_int, ctypes.c_void_p) if os.uname().sysname == "Linux" else None
_renameat2 = _foreign("renameat2", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)


def _checked(result: int, name: str) -> None:
    """Turn a libc return value into an OSError."""
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


class Syscalls:
    """The system itself; subclasses stand in for it in tests.

    Example:
        >>> Syscalls().stat("/").st_nlink > 0
        True
    """

    def __init__(self) -> None:
        self.without_direct: set[int] = set()  # devices that refused O_DIRECT, so that it is tried and logged once
        self.listed: OrderedDict[str, tuple[tuple[int, ...], tuple[str, ...]]] = OrderedDict()  # times and names in it
        self.flushed_roots: dict[str, tuple[int, ...]] = {}  # the times of each root when its names were last flushed

    # files -----------------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, *, folder: int | None = None) -> int:
        """Open ``path`` (inside the open ``folder``, if given) and never follow a link at its end."""
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE, dir_fd=folder)

    def close(self, fd: int) -> None:
        """Close."""
        os.close(fd)

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        """Write some of ``data``; return how much."""
        return os.pwrite(fd, data, offset)

    def preadv(self, fd: int, buffer: memoryview, offset: int) -> int:
        """Fill some of ``buffer``; return how much, 0 at the end of the file."""
        return os.preadv(fd, [buffer], offset)

    def fallocate(self, fd: int, size: int) -> None:
        """Reserve ``size`` bytes on the medium, or raise; never writes zeros instead, as posix_fallocate may."""
        if _fallocate is None:
            raise OSError(errno.ENOTSUP, "fallocate: this system has none")
        while True:
            try:
                return _checked(_fallocate(fd, 0, 0, size), "fallocate")
            except InterruptedError:  # a signal; Python continues its own calls the same way
                continue

    def ftruncate(self, fd: int, size: int) -> None:
        """Cut or grow to ``size``."""
        os.ftruncate(fd, size)

    def fsync(self, fd: int) -> None:
        """Flush to the medium."""
        os.fsync(fd)

    def start_writeback(self, fd: int, offset: int, size: int) -> None:
        """Begin writing dirty pages now, so that the final fsync is short; promises nothing."""
        if _sync_file_range is not None:
            _checked(_sync_file_range(fd, offset, size, _SYNC_FILE_RANGE_WRITE), "sync_file_range")

    def drop_cache(self, fd: int) -> None:
        """Let the page cache forget the file."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def set_direct(self, fd: int, on: bool) -> None:
        """Go around the page cache, or through it again; raises EINVAL where that is impossible."""
        if on and not DIRECT:
            raise OSError(errno.EINVAL, "O_DIRECT: this system has none")
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | DIRECT if on else flags & ~DIRECT)

    def mmap(self, fd: int, size: int) -> memoryview:
        """Map the whole file, private: writes to the map never reach the file."""
        return memoryview(mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))

    def resident(self, fd: int, size: int) -> float:
        """Which share of the file the page cache holds, by a few probes; 1.0 where the system does not say."""
        if _mincore is None:
            return 1.0
        with mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as area:
            base, page = ctypes.addressof(ctypes.c_char.from_buffer(area)), ctypes.c_ubyte()
            offsets = range(0, size, -(-size // _CACHE_PROBES // mmap.PAGESIZE) * mmap.PAGESIZE)
            found = 0
            for offset in offsets:
                _checked(_mincore(base + offset, 1, ctypes.addressof(page)), "mincore")
                found += page.value & 1
        return found / len(offsets)

    def flock(self, fd: int, operation: int) -> None:
        """Lock or unlock."""
        fcntl.flock(fd, operation)

    def utime(self, fd: int) -> None:
        """Set the file's times to now."""
        os.utime(fd)

    def fstat(self, fd: int) -> os.stat_result:
        """Look at an open file."""
        return os.fstat(fd)

    # names -----------------------------------------------------------------------------------------------------------

    def stat(self, path: str) -> os.stat_result:
        """Look at what ``path`` leads to."""
        return os.stat(path)

    def lstat(self, path: str) -> os.stat_result:
        """Look at ``path`` itself."""
        return os.lstat(path)

    def listdir(self, path: str) -> list[str]:
        """Names in a folder."""
        return os.listdir(path)

    def mkdir(self, path: str) -> None:
        """Make one folder."""
        os.mkdir(path, FOLDER_MODE)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        os.unlink(path)

    def rename(self, source: str, target: str, *, out_of: int | None = None, into: int | None = None) -> None:
        """Rename; ``out_of`` and ``into`` are open folders that hold the old and the new name."""
        os.rename(source, target, src_dir_fd=out_of, dst_dir_fd=into)

    def exchange(self, one: str, other: str) -> None:
        """Let two names change places, both at once; raises EINVAL or ENOSYS where that is impossible."""
        if _renameat2 is None:
            raise OSError(errno.ENOSYS, "renameat2: this system has none")
        _checked(_renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE), "renameat2")

    def link(self, source: str, target: str, *, into: int) -> None:
        """Give the file ``source`` a second name ``target`` in the open folder ``into``."""
        os.link(source, target, dst_dir_fd=into, follow_symlinks=False)

    def fsync_dir(self, path: str) -> None:
        """Flush a folder, so that the names in it survive power loss."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    # file systems ----------------------------------------------------------------------------------------------------

    def statvfs(self, path: str) -> os.statvfs_result:
        """Room and limits of the file system of ``path``."""
        return os.statvfs(path)

    def filesystem(self, fd: int) -> int:
        """The magic number of the file system an open file is on; 0 where the system does not say."""
        if _fstatfs is None:
            return 0
        buffer = (ctypes.c_long * 64)()  # larger than any struct statfs; its first word is f_type
        _checked(_fstatfs(fd, ctypes.addressof(buffer)), "fstatfs")
        return int(buffer[0]) & 0xFFFFFFFF

    def now(self) -> host.Moment:
        """What the clocks of this machine say."""
        return host.now()


SYSTEM = Syscalls()  # what stores use unless told otherwise
CALL_NAMES = tuple(name for name, value in vars(Syscalls).items() if callable(value) and not name.startswith("_"))


class WrappedCalls(Syscalls):
    """The calls of ``inner``, each of them made by ``perform``; what is known of the devices is known to both.

    Example:
        >>> class Told(WrappedCalls):
        ...     def perform(self, name, action, *args, **kwargs):
        ...         print(name, *args)
        ...         return action(*args, **kwargs)
        >>> Told(SYSTEM).stat("/").st_nlink > 0
        stat /
        True
    """

    def __init__(self, inner: Syscalls) -> None:
        super().__init__()
        self.inner = inner
        self.without_direct, self.listed, self.flushed_roots = inner.without_direct, inner.listed, inner.flushed_roots

    def perform(self, name: str, action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make one call of ``inner``; subclasses do more around it."""
        return action(*args, **kwargs)


def _wrapped(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(Syscalls, name))
    def method(self: WrappedCalls, *args: Any, **kwargs: Any) -> Any:
        return self.perform(name, getattr(self.inner, name), *args, **kwargs)

    return method


for _name in CALL_NAMES:
    setattr(WrappedCalls, _name, _wrapped(_name))
