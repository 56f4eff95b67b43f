"""Call limit: how long one call may take, and whether somebody has cancelled it."""

from __future__ import annotations

import threading
import time

from model_checkpoint.distributed.errors import CallCancelled, CallTimeout
from model_checkpoint.events import Progress


class CallLimit:
    """The end of one call, set when it begins.

    Example:
        >>> limit = CallLimit("a save", seconds=60)
        >>> limit.check()
        >>> limit.seconds
        60
    """

    def __init__(self, what: str, *, seconds: float, cancel: threading.Event | None = None) -> None:
        self._what, self.seconds, self._cancel = what, seconds, cancel
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Raise if the time is over or the call was cancelled."""
        if self._cancel is not None and self._cancel.is_set():
            raise CallCancelled(f"{self._what} was cancelled. Make the call again to have it done.")
        if time.monotonic() > self._end:
            raise CallTimeout(
                f"{self._what} took longer than {self.seconds:g} s. Look for the rank or the disk that is slow, or "
                "give it a longer timeout."
            )

    def hear(self, event: Progress) -> None:
        """Look at the clock as bytes move; what is raised here ends the operation."""
        self.check()
