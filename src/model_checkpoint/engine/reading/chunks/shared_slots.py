"""Shared slots: memory in which a rank shows chunks to the other ranks of its machine, a few at a time.

Whoever shows waits until all others have looked at what lay in a slot before; whoever looks waits until it is shown.
The memory needs no room on any disk, and is gone with the last process that has it, however that ends.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np

from model_checkpoint.options import LayoutLimits
from model_checkpoint.performance.copying import stream_copy
from model_checkpoint.storage.contract import host

SLOT_BYTES = LayoutLimits().chunk_bytes
_MOST_SLOTS, _FEWEST_SLOTS, _ALL_SLOTS = 8, 2, 32  # of one rank, and of the ranks of a machine together
_LOOK = 0.0002  # seconds between two looks

SlotPlace = Sequence[int]  # where others find the memory of a rank: its process, the descriptor there, and which it is


class Alone(Exception):  # no error: what is left is read without the others
    """The others are not there any more, or not in time."""


class SharedSlots:
    """The slots of one rank, seen by itself or by another one.

    ``shown`` has for each slot the number of what lies in it, negative if that could not be had; ``seen`` the same of
    what each of the ranks has looked at last. Numbers begin with 1 and go around the slots.
    """

    def __init__(self, fd: int, world_size: int) -> None:
        head, size = _sizes(world_size)
        self._memory = memoryview(mmap.mmap(fd, size))
        words = np.frombuffer(self._memory[:head], np.int64)
        self._left, words = words[:1], words[1:]
        self._shown, self._seen = words[:_MOST_SLOTS], words[_MOST_SLOTS:][: world_size * _MOST_SLOTS]
        self._seen = self._seen.reshape(world_size, _MOST_SLOTS)
        self._slots = self._memory[head:]
        self._lock = threading.Lock()

    def show(
        self, number: int, data: memoryview | None, others: Mapping[int, SharedSlots], count: int, wait: WaitLimit
    ) -> None:
        """Lay a chunk where others can look at it, or tell them that it cannot be had; by rank, with their slots."""
        slot, before = (number - 1) % count, number - count
        wait.until(lambda: all(self._seen[rank, slot] >= before or other.has_left for rank, other in others.items()))
        if data is not None:
            stream_copy(self._slots[slot * SLOT_BYTES :][: len(data)], data)
        self._settle()
        self._shown[slot] = number if data is not None else -number

    def look(self, number: int, size: int, count: int, wait: WaitLimit) -> memoryview | None:
        """What is shown under a number, as soon as it is; None if it cannot be had. Good until it is ``seen``."""
        slot = (number - 1) % count
        wait.until(lambda: abs(self._shown[slot]) == number, never=lambda: self.has_left)
        self._settle()
        return self._slots[slot * SLOT_BYTES :][:size] if self._shown[slot] > 0 else None

    def seen(self, number: int, count: int, rank: int) -> None:
        """Say that ``rank`` has looked."""
        self._settle()
        self._seen[rank, (number - 1) % count] = number

    def _settle(self) -> None:
        """Be done with all reads and writes before the next one, also in the eyes of other processors.

        To let go of a lock and take it again is such a barrier. Where even that is not enough, what is looked at too
        soon does not have its digest.
        """
        for _ in range(2):
            with self._lock:
                pass

    def leave(self) -> None:
        """Say that their rank will neither show nor look at anything more; what is shown stays."""
        self._left[0] = 1

    @property
    def has_left(self) -> bool:
        """Whether it has said so."""
        return bool(self._left[0])


class OwnSlots(SharedSlots):
    """The slots of this rank; a descriptor is open until they are closed."""

    def __init__(self, world_size: int) -> None:
        self._fd = os.memfd_create("model_checkpoint")
        try:
            os.ftruncate(self._fd, _sizes(world_size)[1])
            super().__init__(self._fd, world_size)
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> SlotPlace:
        """Where the other ranks of this machine find them."""
        return os.getpid(), self._fd, *_identity(self._fd)

    def close(self) -> None:
        """Let nobody else find them; who has does not lose them."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def own_slots(world_size: int) -> OwnSlots | None:
    """Slots to show chunks in, where the system has such memory."""
    if not host.boot_id() or not host.process_space() or not hasattr(os, "memfd_create"):
        return None
    with suppress(OSError, ValueError):  # no descriptor, no memory, or forbidden: each rank reads alone
        return OwnSlots(world_size)
    return None


def slots_of(place: SlotPlace, world_size: int) -> SharedSlots:
    """The slots of another rank of this machine; an OSError or ValueError if they cannot be had.

    What has their number by now, or belongs to another process of that number, is not touched.
    """
    pid, number, *identity = place
    path = f"/proc/{pid}/fd/{number}"
    if _identity(path) != identity:  # before it is opened, which is more than a look for some files
        raise FileNotFoundError(errno.ENOENT, "no such slots any more", path)
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return SharedSlots(fd, world_size)
    finally:
        os.close(fd)


def _identity(file: int | str) -> list[int]:
    """What no other file of this machine has."""
    found = os.stat(file)
    return [found.st_dev, found.st_ino]


def slots_each(ranks: int) -> int:
    """How many slots each of the ranks of a machine uses: the more there are, the fewer."""
    return max(_FEWEST_SLOTS, min(_MOST_SLOTS, _ALL_SLOTS // max(1, ranks)))


def _sizes(world_size: int) -> tuple[int, int]:
    """Bytes of the numbers, and of all."""
    head = -(-8 * (1 + _MOST_SLOTS * (1 + world_size)) // mmap.PAGESIZE) * mmap.PAGESIZE
    return head, head + _MOST_SLOTS * SLOT_BYTES


class WaitLimit:
    """How long the ranks of a machine wait for each other; ``stop`` ends all waiting at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._stopped = seconds, False

    @property
    def stopped(self) -> bool:
        """Whether nothing is waited for any more."""
        return self._stopped

    def stop(self) -> None:
        """Let everybody who waits, or is going to, go on alone."""
        self._stopped = True

    def until(self, holds: Callable[[], bool], never: Callable[[], bool] = lambda: False) -> None:
        """Return when something holds; raise :class:`Alone` if it ``never`` will, or does not in time."""
        end = time.monotonic() + self._seconds
        while not holds():
            if self._stopped or time.monotonic() > end or (never() and not holds()):
                raise Alone
            time.sleep(_LOOK)
