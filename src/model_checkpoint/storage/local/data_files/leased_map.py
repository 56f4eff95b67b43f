"""Leased map: bytes of a cached file looked at where they lie, while the system keeps everybody from changing them.

Reading a file that is in the page cache copies it once before anybody can check it, and that copy is a quarter of the
cost of a verified load. A map saves it, but alone it is no ground to stand on: whoever cuts the file ends this process,
and whoever writes to it changes bytes between the check and their use. A read lease (``F_SETLEASE``) is: it is refused
while anybody has the file open for writing, and whoever wants to from then on waits until the lease is given back.
"""

from __future__ import annotations

import mmap
import threading
from contextlib import suppress

from model_checkpoint.storage.local.syscalls import Syscalls


class LeasedMap:
    """The bytes of one open file, lent piece by piece; safe to use from many threads.

    As soon as somebody waits for the file, nothing more is lent, and the lease ends with the last piece given back.
    """

    def __init__(self, calls: Syscalls, fd: int, size: int) -> None:
        self._calls, self._fd, self._size = calls, fd, size
        self._lock = threading.Lock()
        self._area: mmap.mmap | None = None  # there as long as the lease is ours
        self._lent = 0
        self._lending = True

    def lend(self, start: int, stop: int) -> memoryview | None:
        """The bytes ``[start, stop)``, the same until they are given back; None where that cannot be promised."""
        with self._lock:
            area = self._ready()
            if area is None:
                return None
            self._lent += 1
        first, last = start // mmap.PAGESIZE, -(-stop // mmap.PAGESIZE)
        try:  # a medium that cannot be read says so here, where later it would end the process
            self._calls.populate(area, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)
        except OSError:
            self._return_one()
            return None
        return memoryview(area)[start:stop]

    def give_back(self, start: int, stop: int) -> None:
        """Say that nobody looks at a piece any more, so that a load does not seem to hold all it has read."""
        first, last = -(-start // mmap.PAGESIZE), stop // mmap.PAGESIZE
        if self._area is not None and last > first:
            with suppress(OSError):  # only advice
                self._calls.forget_pages(self._area, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)
        self._return_one()

    def close(self) -> None:
        """Lend nothing more, and end the lease if nothing is lent."""
        with self._lock:
            self._lending = False
            self._end_if_idle()

    def _ready(self) -> mmap.mmap | None:
        """The map, if the lease is ours and nobody waits for its end."""
        if self._lending and self._area is None:
            self._area = self._begin()
            self._lending = self._area is not None
        elif self._lending and self._is_wanted():
            self._lending = False
            self._end_if_idle()
        return self._area if self._lending else None

    def _begin(self) -> mmap.mmap | None:
        try:
            self._calls.lease(self._fd)
        except OSError:  # somebody else's file, or open for writing, or no leases here: it is read instead
            return None
        try:
            return self._calls.map_shared(self._fd, self._size)
        except (OSError, ValueError):  # no room for it, or cut before the lease
            self._end()
            return None

    def _is_wanted(self) -> bool:
        try:
            return self._calls.lease_wanted(self._fd)
        except OSError:
            return True  # who cannot be asked is not relied upon

    def _return_one(self) -> None:
        with self._lock:
            self._lent -= 1
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._area is not None and not self._lending and not self._lent:
            self._area = None
            self._end()

    def _end(self) -> None:
        with suppress(OSError):  # closing the file ends it as well
            self._calls.end_lease(self._fd)
