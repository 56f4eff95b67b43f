"""Aligned memory: what bytes pass through on their way to or from the medium."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress

PAGE = 4096  # every writer's own alignment divides it

_LARGE_PAGE = 2 << 20


def aligned_memory(nbytes: int) -> memoryview:
    """Page-aligned memory of this process alone, as direct reads and writes want it.

    In large pages as far as it has whole ones: a request to the disk then takes a few of them, not a thousand.

    Example:
        >>> len(aligned_memory(4096))
        4096
    """
    spare = _LARGE_PAGE if nbytes >= _LARGE_PAGE else 0
    memory = mmap.mmap(-1, nbytes + spare, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    begin = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % _LARGE_PAGE if spare else 0
    if spare:
        advise(memory, "MADV_HUGEPAGE", begin, nbytes // _LARGE_PAGE * _LARGE_PAGE)
    return memoryview(memory)[begin : begin + nbytes]


def advise(memory: mmap.mmap, advice: str, start: int, length: int) -> None:
    """Tell the system how a piece of memory will be used, where it knows that advice."""
    if hasattr(mmap, advice):
        with suppress(OSError):  # only advice
            memory.madvise(getattr(mmap, advice), start, length)
