"""Paths: where things lie under a root, and the few steps on them that several operations share."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from model_checkpoint.errors import CheckpointException, LimitExceeded, UnsafeName
from model_checkpoint.manifest import Manifest, decode
from model_checkpoint.options import ReaderLimits
from model_checkpoint.storage.contract.failures import UNSUPPORTED, is_refused
from model_checkpoint.storage.contract.names import MANIFEST, is_name
from model_checkpoint.storage.contract.store import FileStat
from model_checkpoint.storage.local.syscalls import Syscalls

log = logging.getLogger("model_checkpoint.storage")

_SLACK = 2.0  # a file system may round its stamps
_NO_FOLDER_FLUSH = (errno.EINVAL, *UNSUPPORTED)
_NOT_A_FILE = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
_MANIFEST_LIMIT = ReaderLimits().manifest_bytes


class RootPaths(msgspec.Struct, frozen=True):
    """The paths of one root, and the calls that reach them.

    Example:
        >>> from model_checkpoint.storage.local.syscalls import SYSTEM
        >>> RootPaths("/runs/a", SYSTEM).checkpoint("step-1")
        '/runs/a/checkpoints/step-1'
    """

    path: str
    calls: Syscalls

    @property
    def checkpoints(self) -> str:
        """Where published checkpoints lie."""
        return f"{self.path}/checkpoints"

    @property
    def staging(self) -> str:
        """Where attempts lie until they are published."""
        return f"{self.path}/.staging"

    @property
    def trash(self) -> str:
        """Where deleted checkpoints wait for the end of their grace."""
        return f"{self.path}/.trash"

    @property
    def sidecars(self) -> str:
        """Where small values lie beside the checkpoints."""
        return f"{self.path}/.sidecars"

    def checkpoint(self, name: str) -> str:
        """The folder of one published checkpoint."""
        return f"{self.checkpoints}/{name}"

    def stage(self, attempt: str) -> str:
        """The folder of one attempt."""
        return f"{self.staging}/{attempt}"

    def lock(self, attempt: str) -> str:
        """The lock file of one attempt, beside its folder so that publishing does not move it."""
        return f"{self.staging}/{attempt}.lock"


def make_root(root: RootPaths) -> None:
    """Make what is missing of a root and above it; every folder that got a new name in it is flushed.

    The trash is made with it: a deletion is to free room, so it must not need any. The root is flushed even if it was
    all there, since whoever made it may have died before that, unless its names are those this process flushed before.
    """
    missing, above = [], root.path
    while not _exists(root.calls, above):
        missing.append(above)
        above = os.path.dirname(above)
    for folder in reversed(missing):
        make_folder(root.calls, folder)
    for folder in (root.checkpoints, root.staging, root.trash):
        _make(root.calls, folder)
    info = root.calls.stat(root.path)
    times = (info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns)
    if root.calls.flushed_roots.get(root.path) != times:
        flush_folder(root.calls, root.path)
        root.calls.flushed_roots[root.path] = times


def make_folder(calls: Syscalls, path: str) -> None:
    """Make one folder if it is missing, durably; a link in its place is :class:`UnsafeName`."""
    if _make(calls, path):
        flush_folder(calls, os.path.dirname(path))


def _make(calls: Syscalls, path: str) -> bool:
    """Make one folder; whether it was missing."""
    missing = not _exists(calls, path)
    if missing:
        try:
            calls.mkdir(path)
        except FileExistsError:
            log.debug("%s: another process made it first", path)
    refuse_link(calls, path)
    return missing


def refuse_link(calls: Syscalls, path: str) -> None:
    """Raise :class:`UnsafeName` if a link stands where a folder of ours should be, below which we write and remove."""
    try:
        linked = stat.S_ISLNK(calls.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if linked:
        raise UnsafeName(
            f"{path}: is a link, so what is written or removed there lies elsewhere; nothing was touched. Put a real "
            "folder in its place, or link the root as a whole.",
            path,
        )


def _exists(calls: Syscalls, path: str) -> bool:
    try:
        calls.stat(path)
    except FileNotFoundError:
        return False
    return True


def is_at(calls: Syscalls, fd: int, path: str) -> bool:
    """Whether ``path`` still names the open file."""
    try:
        return os.path.samestat(calls.lstat(path), calls.fstat(fd))
    except FileNotFoundError:
        return False


def let_go(calls: Syscalls, fd: int) -> None:
    """Close a descriptor whose close can tell nothing: it was only read, its flush was checked, or its file is dead."""
    with suppress(OSError):
        calls.close(fd)


def flush_folder(calls: Syscalls, path: str) -> None:
    """Make the names in a folder survive power loss; a file system that cannot is named in the log."""
    try:
        calls.fsync_dir(path)
    except OSError as error:
        if error.errno not in _NO_FOLDER_FLUSH:
            raise
        log.warning("%s: this file system cannot flush folders; durability is up to it", path)


def free_bytes(calls: Syscalls, path: str) -> int:
    """Room left for an ordinary user on the file system of ``path``, or of what is there of it."""
    while True:
        try:
            room = calls.statvfs(path)
        except FileNotFoundError:
            path = os.path.dirname(path)
        else:
            return room.f_bavail * room.f_frsize


def remove_tree(calls: Syscalls, path: str) -> int:
    """Remove a file or folder, following no link, and return the bytes given back.

    What is gone already is no error, so any number of processes may do this at once.
    """
    try:
        info = calls.lstat(path)
        if not stat.S_ISDIR(info.st_mode):
            calls.unlink(path)
            return info.st_size if info.st_nlink == 1 else 0
        nbytes = sum(remove_tree(calls, f"{path}/{entry}") for entry in sorted(calls.listdir(path)))
        calls.rmdir(path)
    except FileNotFoundError:
        return 0
    return nbytes


def list_folder(calls: Syscalls, path: str) -> list[str]:
    """Names in a folder; none if it is not there."""
    try:
        return calls.listdir(path)
    except FileNotFoundError:
        return []


def regular_files(calls: Syscalls, path: str) -> dict[str, int]:
    """Every regular file in a folder with its size; links, pipes and folders are no files of a checkpoint."""
    return {entry: info.st_size for entry, info in _regular_files(calls, path)}


def stamped_files(calls: Syscalls, path: str) -> dict[str, FileStat]:
    """Every regular file in a folder with its stamp."""
    return {entry: stamp_of(info) for entry, info in _regular_files(calls, path)}


def stamp_of(info: os.stat_result) -> FileStat:
    """The stamp of a local file: its inode says which copy it is, its time of change whether it was written to."""
    return FileStat(size=info.st_size, identity=f"{info.st_ino:x}-{info.st_mtime_ns:x}", links=info.st_nlink)


def _regular_files(calls: Syscalls, path: str) -> Iterator[tuple[str, os.stat_result]]:
    for entry in calls.listdir(path):
        try:
            info = calls.lstat(f"{path}/{entry}")
        except FileNotFoundError:
            continue  # removed between the two calls, so it is not there
        if stat.S_ISREG(info.st_mode):
            yield entry, info


def is_published(root: RootPaths, name: str) -> bool:
    """Whether ``name`` is a real folder with a manifest; anything else is not a checkpoint and blocks nothing."""
    if not is_name(name):
        return False
    try:
        folder = root.calls.lstat(root.checkpoint(name))
        manifest = root.calls.lstat(f"{root.checkpoint(name)}/{MANIFEST}")
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISDIR(folder.st_mode) and stat.S_ISREG(manifest.st_mode)


def open_regular(calls: Syscalls, folder: str, file: str) -> tuple[int, os.stat_result]:
    """Open a regular file of a real folder; a link, pipe or device in place of either is :class:`UnsafeName`.

    The folder is pinned by its descriptor, so that nothing can be swapped for a link between check and open.
    """
    try:
        pinned = calls.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # O_NONBLOCK: a pipe must be refused, not waited for
            fd = calls.open(file, os.O_RDONLY | os.O_NONBLOCK, folder=pinned)
        finally:
            let_go(calls, pinned)
    except OSError as error:
        if error.errno not in _NOT_A_FILE:
            raise
        raise _unsafe(folder, file) from error
    return _regular(calls, fd, folder, file)


def _regular(calls: Syscalls, fd: int, folder: str, file: str) -> tuple[int, os.stat_result]:
    try:
        info = calls.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise _unsafe(folder, file)
    except BaseException:
        let_go(calls, fd)
        raise
    return fd, info


def _unsafe(folder: str, file: str) -> UnsafeName:
    return UnsafeName(
        f"{folder}: {file} is no regular file in a real folder (a link, pipe or device stands there). "
        "It was not read; remove it, and load another step.",
        folder,
        file=file,
    )


def read_whole(calls: Syscalls, fd: int, size: int, *, offset: int = 0) -> bytes:
    """Read ``size`` bytes from ``offset``, or as many as there are."""
    buffer = bytearray(size)
    view, done = memoryview(buffer), 0
    while done < size and (count := calls.preadv(fd, view[done:], offset + done)):
        done += count
    return bytes(view[:done])


def write_whole(calls: Syscalls, fd: int, data: bytes, *, offset: int = 0) -> None:
    """Write all of ``data``; short writes are legal and continued."""
    view, done = memoryview(data), 0
    while done < len(view):
        count = calls.pwrite(fd, view[done:], offset + done)
        if count <= 0:
            raise OSError(errno.EIO, "the system wrote nothing and gave no reason")
        done += count


def read_manifest(calls: Syscalls, folder: str, *, limit: int | None = None, file: str = MANIFEST) -> bytes:
    """The bytes of the manifest in ``folder``, or the first of them; raises FileNotFoundError when there is none."""
    fd, info = open_regular(calls, folder, file)
    try:
        if info.st_size > _MANIFEST_LIMIT:
            raise LimitExceeded(
                f"{folder}: the manifest has {info.st_size} bytes, the limit is {_MANIFEST_LIMIT}. "
                "It is damaged or hostile; load another step.",
                folder,
                file=MANIFEST,
            )
        return read_whole(calls, fd, info.st_size if limit is None else min(limit, info.st_size))
    finally:
        let_go(calls, fd)


def decode_manifest(calls: Syscalls, folder: str, *, file: str = MANIFEST) -> Manifest | None:
    """The manifest in ``folder``; None if it cannot be understood. Raises FileNotFoundError when there is none."""
    try:
        return decode(read_manifest(calls, folder, file=file), folder)
    except CheckpointException as error:
        log.warning("%s: its manifest is not used to decide anything (%s)", folder, error)
        return None


def attempt_of(calls: Syscalls, folder: str) -> str | None:
    """Which attempt the manifest in ``folder`` is of: None if there is none, "" if it does not say."""
    try:
        manifest = decode_manifest(calls, folder)
    except FileNotFoundError:
        return None
    return manifest.attempt if manifest is not None else ""


def is_of_another(calls: Syscalls, folder: str, attempt: str) -> bool:
    """Whether what lies in the folder of an attempt is what it has changed places with."""
    return attempt_of(calls, folder) not in (attempt, None, "")


def filesystem_time(calls: Syscalls, folder: str) -> float:
    """What the clock of the file system says, unix time: a folder of ours is stamped and looked at.

    That needs no room. Where this user may not, the clock of this machine is asked.
    """
    fd = calls.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        calls.utime(fd)
        return calls.fstat(fd).st_mtime
    except OSError as error:
        if not is_refused(error):
            raise
        return calls.now().wall / 1e9
    finally:
        let_go(calls, fd)


def age_of(calls: Syscalls, fd: int, stamp: float, *, clock: str) -> float:
    """Seconds since the open file or folder got its ``stamp``, by the clock of the file system of folder ``clock``."""
    passed = filesystem_time(calls, clock) - stamp
    if passed < -_SLACK:
        log.warning("%s: holds something stamped %.0f seconds in the future; its grace begins now", clock, -passed)
        with suppress(OSError):  # not ours to stamp: it is judged again by the next recovery
            calls.utime(fd)
    return max(passed, 0.0)
