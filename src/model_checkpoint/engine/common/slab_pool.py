"""Slab pool: slabs that saves are done with, kept for the next save.

The system clears fresh pages about as slowly as we hash and copy what goes there, and several ranks of one machine all
wait for it. What lies idle the system may take back at any time; it is gone with :meth:`SlabPool.release` and with the
process, and a forked child begins with an empty pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from model_checkpoint import forks
from model_checkpoint.engine.common.pages import Bytes, lay_idle, new_slab, take_up


class SlabPool:
    """Idle slabs of this process, ``most`` bytes at most.

    Example:
        >>> pool = SlabPool(most=1 << 20)
        >>> with pool.lent(4096) as slab:
        ...     slab[:] = 7
        >>> with pool.lent(100) as again:
        ...     again is slab, pool.idle_bytes
        (True, 0)
    """

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._idle: list[Bytes] = []  # the shortest first
        self._lock = forks.lock()
        forks.in_child(self._begin_anew)

    @property
    def idle_bytes(self) -> int:
        """Bytes that nobody uses now."""
        with self._lock:
            return sum(map(len, self._idle))

    @contextmanager
    def lent(self, nbytes: int) -> Iterator[Bytes]:
        """A slab of ``nbytes`` or more, with anything in it; it comes back unless an error left the block.

        After an error a call that was given up may still read from it.
        """
        slab = self._take(nbytes)
        if slab is None:
            slab = new_slab(nbytes)
        else:
            take_up(slab)
        yield slab
        self._keep(slab)

    def release(self) -> None:
        """Give idle memory back to the system."""
        with self._lock:
            self._idle.clear()

    def _take(self, nbytes: int) -> Bytes | None:
        with self._lock:
            for i, slab in enumerate(self._idle):
                if len(slab) >= nbytes:
                    return self._idle.pop(i)
            if self._idle:  # all are too short: a longer one will lie here instead
                del self._idle[0]
            return None

    def _keep(self, slab: Bytes) -> None:
        lay_idle(slab)
        with self._lock:
            self._idle.append(slab)
            self._idle.sort(key=len)
            while sum(map(len, self._idle)) > self._most:
                del self._idle[0]

    def _begin_anew(self) -> None:
        self._idle = []
