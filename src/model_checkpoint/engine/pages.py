"""Pages: aligned memory that bytes pass through on their way to or from the medium."""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

PAGE = 4096  # every writer's own alignment divides it


_LARGE_PAGE = 2 << 20


def new_slab(nbytes: int) -> Bytes:
    """Page-aligned memory of this process alone, as direct reads and writes want it.

    In large pages where the system has them: one request to the disk then takes a few of them, not a thousand. They
    need whole large pages, so the memory begins on one and has room for the last; what is not touched costs nothing.
    """
    whole = -(-nbytes // _LARGE_PAGE) * _LARGE_PAGE
    memory = mmap.mmap(-1, whole + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # only advice
            memory.madvise(mmap.MADV_HUGEPAGE)
    slab = np.frombuffer(memory, dtype=np.uint8)
    begin = -slab.ctypes.data % _LARGE_PAGE
    return slab[begin : begin + nbytes]
