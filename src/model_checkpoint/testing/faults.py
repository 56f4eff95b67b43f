"""Faults: a stand-in for the system that records every storage call and fails, cuts or kills at a chosen one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from model_checkpoint import forks
from model_checkpoint.storage.local.syscalls import Syscalls, WrappedCalls

KILLED = 137  # exit code of a process that a fault ended

_FLUSHES = ("fsync", "fsync_dir")
_BLOCK = 4096


class Kind(Enum):
    """What happens at the chosen call."""

    KILL_BEFORE = "kill_before"
    KILL_AFTER = "kill_after"
    FAIL = "fail"  # raise the error; the call is not made
    LOSE_REPLY = "lose_reply"  # make the call, then raise the error all the same
    SHORT_WRITE = "short_write"  # write only a part; other calls are made as they are


KILLS = (Kind.KILL_BEFORE, Kind.KILL_AFTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: at call number ``at`` (the first is 1), and from then on if ``lasting``.

    Example:
        >>> Fault(kind=Kind.FAIL, at=3, code=5).hits(3), Fault(kind=Kind.FAIL, at=3, code=5).hits(4)
        (True, False)
    """

    kind: Kind
    at: int
    code: int = 0  # errno
    lasting: bool = False

    def hits(self, index: int) -> bool:
        """Whether call number ``index`` meets it."""
        return index >= self.at if self.lasting else index == self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One recorded call; ``inode`` is known for flushes."""

    index: int
    name: str
    path: str
    inode: int | None = None
    failed: bool = False


def flushes_retried(trace: Sequence[Call]) -> list[Call]:
    """Flushes of a file or folder whose flush had failed before in ``trace``; a store must never make one."""
    failed: set[int | None] = set()
    again = []
    for call in trace:
        if call.name in _FLUSHES:
            if call.inode in failed:
                again.append(call)
            if call.failed:
                failed.add(call.inode)
    return again


class FaultyCalls(WrappedCalls):
    """The system with a recorder, and one fault if given.

    Example:
        >>> calls = FaultyCalls()
        >>> _ = calls.stat("/")
        >>> [(call.index, call.name, call.path) for call in calls.trace]
        [(1, 'stat', '/')]
    """

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__(Syscalls())
        self.fault = fault
        self.trace: list[Call] = []
        self._paths: dict[int, str] = {}
        self._guard = forks.lock()
        self._count = 0

    def _next(self) -> int:
        with self._guard:
            self._count += 1
            return self._count

    def perform(self, name: str, action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make one call, as the fault will have it, and write it down."""
        index = self._next()
        fault = self.fault if self.fault is not None and self.fault.hits(index) else None
        path = self._path_of(args)
        inode = _inode_of(args[0]) if name in _FLUSHES else None
        try:
            result = _meet(fault, name, action, args, kwargs)
        except OSError:
            self.trace.append(Call(index=index, name=name, path=path, inode=inode, failed=True))
            raise
        self.trace.append(Call(index=index, name=name, path=path, inode=inode))
        if name == "open":
            self._paths[result] = path
        return result

    def _path_of(self, args: tuple[Any, ...]) -> str:
        first = args[0] if args else ""
        return self._paths.get(first, f"fd {first}") if isinstance(first, int) else str(first)


def _inode_of(target: int | str) -> int | None:
    try:
        return os.stat(target).st_ino
    except OSError:
        return None


def _meet(
    fault: Fault | None, name: str, action: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Make the call as ``fault`` will have it."""
    if fault is None:
        return action(*args, **kwargs)
    if fault.kind is Kind.KILL_BEFORE:
        os._exit(KILLED)
    if fault.kind is Kind.SHORT_WRITE and name == "pwrite":
        fd, data, offset = args
        return action(fd, data[: _part(len(data))], offset)
    if fault.kind is Kind.FAIL:
        if name == "close":
            action(*args)  # the system frees the descriptor even when close reports an error
        raise OSError(fault.code, os.strerror(fault.code))
    try:
        result = action(*args, **kwargs)
    finally:
        if fault.kind is Kind.KILL_AFTER:  # also after a call that fails by itself
            os._exit(KILLED)
    if fault.kind is Kind.LOSE_REPLY:
        if name == "open":
            os.close(result)  # nobody learns of this descriptor
        raise OSError(fault.code, os.strerror(fault.code))
    return result


def _part(length: int) -> int:
    """About half, in whole blocks where there are several, as a disk would."""
    half = length // 2
    return max(half - half % _BLOCK if half > _BLOCK else half, min(length, 1))
