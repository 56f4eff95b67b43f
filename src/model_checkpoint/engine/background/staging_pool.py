"""Staging pool: the staging memory of this process, kept between saves because fresh pages cost three times the copy.

Idle slabs stay until :meth:`StagingPool.release`, until a save with a smaller ceiling needs them gone, or until the
process ends; a forked child starts with an empty pool.
"""

from __future__ import annotations

from collections.abc import Callable

from model_checkpoint import forks
from model_checkpoint.engine.common.pages import Bytes, new_slab
from model_checkpoint.errors import MemoryRefused

_POLL_SECONDS = 0.1


class StagingPool:
    """Slabs that many saves share; the sum of all of them never passes the ceiling of whoever takes one.

    Example:
        >>> pool = StagingPool()
        >>> slab = pool.take(4096, limit=8192, stopped=lambda: False)
        >>> pool.give(slab)
        >>> pool.take(4096, limit=8192, stopped=lambda: False) is slab, pool.total
        (True, 4096)
    """

    def __init__(self) -> None:
        self._idle: list[Bytes] = []
        self._changed = forks.condition()
        self.total = 0  # bytes of all slabs, idle or not
        self.peak = 0  # the most there ever were

    def take(self, nbytes: int, *, limit: int, stopped: Callable[[], bool], returning: bool = False) -> Bytes | None:
        """Return a slab of ``nbytes`` or more, waiting for one to come back; None if ``stopped`` says so first.

        Memory the system refuses is waited for, too, if slabs are ``returning`` while this waits.
        """
        with self._changed:
            while not stopped():
                self._shrink(limit)
                slab = self._reused(nbytes) or self._fresh(nbytes, limit, returning=returning)
                if slab is not None:
                    return slab[0]
                self._changed.wait(_POLL_SECONDS)
        return None

    def give(self, slab: Bytes) -> None:
        """Take a slab back."""
        with self._changed:
            self._idle.append(slab)
            self._changed.notify_all()

    def release(self) -> None:
        """Give idle memory back to the system."""
        with self._changed:
            self._shrink(0)

    def _shrink(self, limit: int) -> None:
        """Drop idle slabs, the longest first, until the sum is within ``limit``."""
        self._idle.sort(key=len)
        while self._idle and self.total > limit:
            self.total -= len(self._idle.pop())

    def _reused(self, nbytes: int) -> tuple[Bytes] | None:
        """The shortest idle slab that is long enough."""
        for i, slab in enumerate(self._idle):
            if len(slab) >= nbytes:
                return (self._idle.pop(i),)
        return None

    def _fresh(self, nbytes: int, limit: int, *, returning: bool) -> tuple[Bytes] | None:
        self._shrink(limit - nbytes)
        if self.total + nbytes > limit:
            return None
        try:
            slab = new_slab(nbytes, inherited=False)
        except (OSError, MemoryError) as error:
            self._shrink(0)
            if returning and self.total:
                return None
            raise MemoryRefused(
                f"staging memory: the system refused {nbytes} bytes more ({error}), {self.total} are held. Pass a "
                "memory_limit below that to save_async, or use the blocking save."
            ) from error
        self.total += nbytes
        self.peak = max(self.peak, self.total)
        return (slab,)


POOL = StagingPool()


def _start_anew() -> None:
    """In a forked child, where the slabs do not exist and the lock may be held by nobody."""
    POOL.__init__()  # type: ignore[misc]  # the one object every module holds


forks.in_child(_start_anew)
