"""Locks: how an attempt shows that it is alive, and how recovery makes sure that it is dead.

Each attempt holds an flock on ``.staging/<attempt>.lock`` from its first to its last call; the file says which process
that is. The system drops the lock when the process dies, however it dies. The file's time is refreshed while bytes
flow, for file systems that have no locks. How old an attempt is, ``ages`` tells.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress

import msgspec

from model_checkpoint.errors import StorageFailure
from model_checkpoint.options import MIB, Graces
from model_checkpoint.storage.contract.failures import UNSUPPORTED
from model_checkpoint.storage.contract.host import Moment
from model_checkpoint.storage.local.data_files.files import is_local
from model_checkpoint.storage.local.paths import (
    RootPaths,
    age_of,
    flush_folder,
    is_at,
    let_go,
    log,
    read_whole,
    write_whole,
)
from model_checkpoint.storage.local.syscalls import Syscalls

_BEAT_SECONDS = 10.0
_TRIES = 16
_OWNER_LIMIT = 16 * MIB
_NOT_OURS = (errno.ELOOP, errno.EISDIR, errno.ENXIO)


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Which process an attempt belongs to, and what it is about to replace."""

    host: str
    boot: str
    pid: int
    started: float  # seconds since that boot
    name: str  # the checkpoint the attempt wants to become
    obsolete: tuple[str, ...] = ()  # files of the old version it means to remove once it has replaced it


def _this_process(calls: Syscalls, name: str) -> Owner:
    now = calls.now()
    return Owner(host=os.uname().nodename, boot=now.boot, pid=os.getpid(), started=now.since_boot, name=name)


class AttemptLock:
    """The lock of one living attempt."""

    def __init__(self, root: RootPaths, attempt: str, name: str) -> None:
        self._calls, self._folder = root.calls, root.staging
        self._path = root.lock(attempt)
        self._fd = _locked_file(self._calls, self._path)
        self._beaten = time.monotonic()
        try:
            self._owner = _this_process(self._calls, name)
            self._noted = msgspec.json.encode(self._owner)
            write_whole(self._calls, self._fd, self._noted)
        except BaseException:
            self.release()
            raise

    def beat(self) -> None:
        """Refresh the time of the file, at most every ten seconds."""
        now = time.monotonic()
        if now - self._beaten >= _BEAT_SECONDS:
            self._beaten = now
            with suppress(OSError):  # the flock is the proof of life; the time only helps where there are no locks
                self._calls.utime(self._fd)

    def note_obsolete(self, files: tuple[str, ...]) -> None:
        """Write down, durably, what the attempt will remove after the switch, so that recovery can finish it."""
        line = msgspec.json.encode(msgspec.structs.replace(self._owner, obsolete=files))
        self._noted = line.ljust(len(self._noted))  # nothing of a longer note may stay behind a shorter one
        write_whole(self._calls, self._fd, self._noted)
        self._calls.fsync(self._fd)
        flush_folder(self._calls, self._folder)

    def release(self) -> None:
        """Remove the file and let go; what fails here is left to recovery."""
        try:
            self._calls.unlink(self._path)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("%s: could not be removed, recovery will (%s)", self._path, error)
        self.leave()

    def leave(self) -> None:
        """Let go but keep the file, so that recovery knows that something is left to do."""
        let_go(self._calls, self._fd)


def _locked_file(calls: Syscalls, path: str) -> int:
    """Create and lock the file; a recovery that came in between has unlinked it, then it is made anew."""
    for _ in range(_TRIES):
        fd = calls.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            take_lock(calls, fd, path, otherwise="recovery goes by the file's time")
            if is_at(calls, fd, path):
                return fd
        except BaseException:
            with suppress(OSError):  # the first error is the one to report
                calls.unlink(path)
            let_go(calls, fd)
            raise
        let_go(calls, fd)
    raise StorageFailure(f"{path}: the lock was taken away {_TRIES} times. Stop whatever cleans this folder.", path)


def take_lock(calls: Syscalls, fd: int, path: str, *, otherwise: str) -> None:
    """Lock an open file; where the file system has no locks, log what is done ``otherwise``."""
    try:
        calls.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        log.warning("%s: this file system has no locks; %s", path, otherwise)


class AttemptClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Recovery's hold on a dead attempt; ``owner`` is None if it died before it could say who it was."""

    calls: Syscalls
    fd: int | None
    owner: Owner | None

    def release(self) -> None:
        """Let go."""
        if self.fd is not None:
            let_go(self.calls, self.fd)


def claim(root: RootPaths, attempt: str, graces: Graces) -> AttemptClaim | float | None:
    """Take hold of an attempt that is surely dead and old enough.

    Else return how many seconds it takes to be that, or None if it lives or nobody knows.
    """
    path = root.lock(attempt)
    try:
        fd = root.calls.open(path, os.O_RDWR)
    except FileNotFoundError:
        return _claim_orphan(root, attempt, graces)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        log.warning("%s: is no regular file, so no attempt of ours; left alone. Remove it", path)
        return None
    held = None
    try:
        held = _claim_file(root, fd, path, graces)
    finally:
        if not isinstance(held, AttemptClaim):
            let_go(root.calls, fd)
    return held


def _claim_file(root: RootPaths, fd: int, path: str, graces: Graces) -> AttemptClaim | float | None:
    calls = root.calls
    try:
        calls.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lockable = True
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        lockable = False
    now, info = calls.now(), calls.fstat(fd)
    owner = _read_owner(calls, fd, info.st_size)
    grace = graces.local if lockable and _is_ours(calls, fd, owner, now) else graces.foreign
    running = now.since(owner.boot, owner.started) if owner is not None else None
    if running is None:
        age = age_of(calls, fd, info.st_mtime, clock=root.staging)
    elif lockable:
        age = running
    else:  # nothing proves it dead: ask when it last gave a sign of life, which cannot be before it began
        age = min(running, age_of(calls, fd, info.st_mtime, clock=root.staging))
    if age < grace:
        return grace - age
    return AttemptClaim(calls=calls, fd=fd, owner=owner) if is_at(calls, fd, path) else None


_OWNER_DECODER = msgspec.json.Decoder(Owner)  # made once: threads that save at once must not be the first


def _read_owner(calls: Syscalls, fd: int, size: int) -> Owner | None:
    try:
        return _OWNER_DECODER.decode(read_whole(calls, fd, min(size, _OWNER_LIMIT)))
    except msgspec.DecodeError:
        return None  # killed, or cut off by power loss, before it was written


def _is_ours(calls: Syscalls, fd: int, owner: Owner | None, now: Moment) -> bool:
    """Whether the attempt ran on this host and boot; one that never got to say so did, if the disk is our own."""
    if owner is None:
        return is_local(calls, fd)
    return owner.host == os.uname().nodename and owner.boot == now.boot


def _claim_orphan(root: RootPaths, attempt: str, graces: Graces) -> AttemptClaim | float | None:
    """A stage without lock file: the lock is made first and removed last, so only power loss leaves one."""
    calls, path = root.calls, root.stage(attempt)
    try:
        fd = calls.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        grace = graces.local if is_local(calls, fd) else graces.foreign
        age = age_of(calls, fd, calls.fstat(fd).st_mtime, clock=root.staging)
    finally:
        let_go(calls, fd)
    return AttemptClaim(calls=calls, fd=None, owner=None) if age >= grace else grace - age
