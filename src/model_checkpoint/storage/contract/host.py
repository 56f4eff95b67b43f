"""Host: which start of which machine this is, and what its clocks say.

So that what another machine left is not taken for our own, and that no age hangs on a clock that somebody sets.
"""

from __future__ import annotations

import os
import time

import msgspec

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine sleeps, where there is one


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One moment by the clocks of one machine.

    ``since_boot`` (seconds) never jumps but means something only beside its ``boot``; ``wall`` (unix nanoseconds) means
    something everywhere but may jump at any time.
    """

    boot: str
    since_boot: float
    wall: int

    def since(self, boot: str, since_boot: float) -> float | None:
        """Seconds from a moment of this boot until now; None if it was of another one, or cannot have been.

        Example:
            >>> now().since("another boot", 0.0) is None
            True
        """
        passed = self.since_boot - since_boot
        return passed if boot and boot == self.boot and passed >= 0 else None


def now() -> Moment:
    """What the clocks of this machine say."""
    return Moment(boot=boot_id(), since_boot=time.clock_gettime(_STEADY), wall=time.time_ns())


def boot_id() -> str:
    """Which start of this machine it is; empty where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def process_space() -> str:
    """Among which processes the numbers of processes mean the same; empty where the system does not say."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
