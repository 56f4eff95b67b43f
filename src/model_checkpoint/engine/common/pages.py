"""Pages: aligned memory that bytes pass through on their way to or from the medium."""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

PAGE = 4096  # every writer's own alignment divides it


_LARGE_PAGE = 2 << 20


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


def _advise(memory: mmap.mmap, advice: str, start: int, length: int) -> None:
    if hasattr(mmap, advice):
        with suppress(OSError):  # only advice
            memory.madvise(getattr(mmap, advice), start, length)
