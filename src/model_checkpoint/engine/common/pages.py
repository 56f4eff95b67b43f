"""Pages: arrays over aligned memory, written, laid idle and taken up again."""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from model_checkpoint.engine.common.aligned_memory import advise, aligned_memory

Bytes = npt.NDArray[np.uint8]

_WIPE_ON_FORK, _KEEP_ON_FORK = 18, 19  # Linux has them, Python no names for them


def new_slab(nbytes: int, *, inherited: bool = True) -> Bytes:
    """Aligned memory as an array.

    ``inherited=False`` keeps it from children: a fork would make every later write to it fault once more.
    """
    slab = np.frombuffer(aligned_memory(nbytes), dtype=np.uint8)
    if not inherited:
        memory = _memory_of(slab)
        advise(memory, "MADV_DONTFORK", 0, len(memory))
    return slab


def lay_idle(slab: Bytes) -> None:
    """Let the system have the pages of a slab if it wants memory, and children find zeros there, until it is taken up.

    Who writes to it again finds the pages that the system has left there, and is not slowed down by children.
    """
    memory = _memory_of(slab)
    advise(memory, "MADV_FREE", 0, len(memory))
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
