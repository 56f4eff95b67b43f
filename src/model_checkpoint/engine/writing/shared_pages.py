"""Shared pages: pages that several runs share, since chunks end anywhere and direct writes only on page borders."""

from __future__ import annotations

import threading

import numpy as np

from model_checkpoint.engine.common.aligned_memory import PAGE
from model_checkpoint.engine.common.pages import Bytes


class SharedPages:
    """Gathers shared pages from any thread; whoever brings the last byte of one writes it along with its own bytes.

    So a shared page costs no write of its own, which would wait behind everybody's long ones.

    Example:
        >>> edges, room = SharedPages(size=5000), np.zeros(PAGE, dtype=np.uint8)
        >>> edges.complete(4096, room, slice(0, 500)), edges.complete(4096, room, slice(500, 904))
        (False, True)
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._pages: dict[int, _SharedPage] = {}
        self._lock = threading.Lock()

    def complete(self, start: int, room: Bytes, part: slice) -> bool:
        """Take ``part`` of the page at ``start`` from ``room``; if it was the last one, put the whole page there.

        What lies beyond the end of the file is zeros.
        """
        with self._lock:
            page = self._pages.setdefault(start, _SharedPage())
            page.data[part] = room[part]
            page.missing -= part.stop - part.start
            if page.missing > PAGE - min(PAGE, self._size - start):
                return False
            room[:] = self._pages.pop(start).data
            return True


class _SharedPage:
    """One page, as far as it has come."""

    __slots__ = ("data", "missing")

    def __init__(self) -> None:
        self.data = np.zeros(PAGE, dtype=np.uint8)
        self.missing = PAGE
