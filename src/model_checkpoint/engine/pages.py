"""Pages: aligned memory that bytes pass through on their way to or from the medium."""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def new_slab(nbytes: int) -> Bytes:
    """Page-aligned memory of this process alone, as direct reads and writes want it.

    In large pages where the system has them: one request to the disk then takes a few of them, not a thousand.
    """
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # only advice
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)
