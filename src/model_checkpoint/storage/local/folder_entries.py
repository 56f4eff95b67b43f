"""Folder entries: the names in a folder, read again only after it changed.

Reading a folder costs time for every name in it, so what was read is kept for as long as the folder's own times stay
the same. They are trusted only on a disk of this machine, and only once they are so old that another change would have
given the folder other ones.
"""

from __future__ import annotations

import os
import time

from model_checkpoint.storage.local.data_files.files import is_local
from model_checkpoint.storage.local.paths import let_go
from model_checkpoint.storage.local.syscalls import Syscalls

_FOLDERS = 8  # so many are remembered
_TICK = 0.05  # seconds; file systems take their time from a clock that moves every few milliseconds
_COARSE_TICK = 3.0  # where times have no fractions, they are of whole seconds or even two


def folder_entries(calls: Syscalls, path: str) -> tuple[str, ...]:
    """Names in a folder, in no order; none if it is not there."""
    try:
        now, info = time.time(), calls.stat(path)
        times = (info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns)
        known = calls.listed.get(path)
        if known is not None and known[0] == times:
            return known[1]
        names = tuple(calls.listdir(path))
        if _has_settled(info, now) and _is_local(calls, path):
            _remember(calls, path, (times, names))
    except FileNotFoundError:
        return ()
    return names


def _has_settled(info: os.stat_result, now: float) -> bool:
    """Whether a change from ``now`` on must show in the folder's times."""
    latest = max(info.st_mtime_ns, info.st_ctime_ns)
    tick = _TICK if info.st_mtime_ns % 1_000_000_000 else _COARSE_TICK
    return now - latest / 1e9 > tick


def _is_local(calls: Syscalls, path: str) -> bool:
    fd = calls.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return is_local(calls, fd)
    finally:
        let_go(calls, fd)


def _remember(calls: Syscalls, path: str, entries: tuple[tuple[int, ...], tuple[str, ...]]) -> None:
    calls.listed.pop(path, None)
    calls.listed[path] = entries
    while len(calls.listed) > _FOLDERS:
        calls.listed.popitem(last=False)
