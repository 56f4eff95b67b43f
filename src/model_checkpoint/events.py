"""Events: how lower rooms report what happens, through a callable they are handed.

Hooks, progress bars and loggers subscribe above; nothing here knows them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one operation has come, in bytes unless ``unit`` says what else is counted."""

    operation: str
    done: int
    total: int
    seconds: float
    unit: str = "bytes"

    @property
    def rate(self) -> float:
        """How much per second so far; 0.0 before the clock moved."""
        return self.done / self.seconds if self.seconds > 0 else 0.0


Emit = Callable[[Progress], None]


def ignore(event: Progress) -> None:
    """Drop an event; the default listener."""
