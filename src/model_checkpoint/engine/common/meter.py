"""Meter: count what one operation has done, from many threads, and report it."""

from __future__ import annotations

import threading
import time

from model_checkpoint.events import Emit, Progress, ignore


class Meter:
    """What is done so far, of a total that may grow; bytes, unless ``unit`` says what else."""

    def __init__(self, operation: str, total: int, emit: Emit, *, unit: str = "bytes") -> None:
        self._operation, self._total, self._emit, self._unit, self._done = operation, total, emit, unit, 0
        self._started, self._lock = time.monotonic(), threading.Lock()

    @property
    def done(self) -> int:
        """How much was counted."""
        return self._done

    def expect(self, more: int) -> None:
        """There is ``more`` to do than was known."""
        with self._lock:
            self._total += more

    def add(self, count: int) -> None:
        """Count so much more."""
        with self._lock:
            self._done += count
            if self._emit is ignore:
                return
            seconds = time.monotonic() - self._started
            event = Progress(
                operation=self._operation, done=self._done, total=self._total, seconds=seconds, unit=self._unit
            )
            self._emit(event)

    def share(self, count: int) -> Emit:
        """A listener for an operation that is ``count`` of this one, whatever it counts itself.

        Example:
            >>> seen = []
            >>> inner = Meter("adopt", 10, seen.append).share(4)
            >>> inner(Progress(operation="save", done=50, total=100, seconds=0.1))
            >>> seen[0].done, seen[0].total
            (2, 10)
        """
        told = 0

        def listen(event: Progress) -> None:
            nonlocal told
            come = count * min(event.done, event.total) // max(1, event.total)
            if come > told:
                told, more = come, come - told
                self.add(more)

        return listen
