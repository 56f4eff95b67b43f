"""Meter: count the bytes of one operation from many threads and report them."""

from __future__ import annotations

import threading
import time

from model_checkpoint.events import Emit, Progress, ignore


class Meter:
    """Bytes done so far, of a known total."""

    def __init__(self, operation: str, total: int, emit: Emit) -> None:
        self._operation, self._total, self._emit, self._done = operation, total, emit, 0
        self._started, self._lock = time.monotonic(), threading.Lock()

    @property
    def done(self) -> int:
        """Bytes counted."""
        return self._done

    def add(self, nbytes: int) -> None:
        """Count ``nbytes`` more."""
        with self._lock:
            self._done += nbytes
            if self._emit is ignore:
                return
            seconds = time.monotonic() - self._started
            self._emit(Progress(operation=self._operation, done=self._done, total=self._total, seconds=seconds))
