"""Pages: aligned memory that bytes pass through on their way to or from the medium."""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

PAGE = 4096  # every writer's own alignment divides it

_LARGE_PAGE = 2 << 20
_WIPE_ON_FORK, _KEEP_ON_FORK = 18, 19  # Linux has them, Python no names for them


def new_slab(nbytes: int, *, inherited: bool = True) -> Bytes:
    """Page-aligned memory of this process alone, as direct reads and writes want it.

    In large pages as far as it has whole ones: a request to the disk then takes a few of them, not a thousand.
    ``inherited=False`` keeps it from children: a fork would make every later write to it fault once more.
    """
    spare = _LARGE_PAGE if nbytes >= _LARGE_PAGE else 0
    memory = mmap.mmap(-1, nbytes + spare, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    slab = np.frombuffer(memory, dtype=np.uint8)
    begin = -slab.ctypes.data % _LARGE_PAGE if spare else 0
    if spare:
        _advise(memory, "MADV_HUGEPAGE", begin, nbytes // _LARGE_PAGE * _LARGE_PAGE)
    if not inherited:
        _advise(memory, "MADV_DONTFORK", 0, nbytes + spare)
    return slab[begin : begin + nbytes]


def lay_idle(slab: Bytes) -> None:
    """Let the system have the pages of a slab if it wants memory, and children find zeros there, until it is taken up.

    Who writes to it again finds the pages that the system has left there, and is not slowed down by children.
    """
    memory = _memory_of(slab)
    _advise(memory, "MADV_FREE", 0, len(memory))
    if sys.platform == "linux":
        with suppress(OSError):  # only advice
            memory.madvise(_WIPE_ON_FORK)


def take_up(slab: Bytes) -> None:
    """Make an idle slab like a new one: what is written there from now on a child has, too."""
    if sys.platform == "linux":
        with suppress(OSError):  # was never advised otherwise
            _memory_of(slab).madvise(_KEEP_ON_FORK)


def _memory_of(slab: Bytes) -> mmap.mmap:
    behind: Any = slab
    while not isinstance(behind, mmap.mmap):
        behind = behind.obj if isinstance(behind, memoryview) else behind.base
    return behind


def _advise(memory: mmap.mmap, advice: str, start: int, length: int) -> None:
    if hasattr(mmap, advice):
        with suppress(OSError):  # only advice
            memory.madvise(getattr(mmap, advice), start, length)
