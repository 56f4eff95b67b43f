"""Call limit: how long one call may take, and whether somebody has cancelled or left it."""

from __future__ import annotations

import threading
import time

from model_checkpoint.distributed.errors import CallCancelled, CallTimeout
from model_checkpoint.events import Progress


class CallLimit:
    """The end of one call, set when it begins; ``where`` is the checkpoint it is about.

    Example:
        >>> limit = CallLimit("the save", seconds=60)
        >>> limit.check()
        >>> limit.seconds, 59 < limit.left <= 60
        (60, True)
    """

    def __init__(self, what: str, *, seconds: float, cancel: threading.Event | None = None, where: str = "") -> None:
        self.what, self.seconds, self._cancel, self._where = what, seconds, cancel, where
        self._end = time.monotonic() + seconds
        self._interrupt: BaseException | None = None

    @property
    def left(self) -> float:
        """Seconds until it ends, 0 if it has."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise if the time is over or the call was cancelled."""
        self.check_interrupt()
        if self._cancel is not None and self._cancel.is_set():
            raise CallCancelled(f"{self.what} was cancelled. Make the call again to have it done.", self._where)
        if time.monotonic() > self._end:
            raise CallTimeout(
                f"{self.what} took longer than {self.seconds:g} s. Look for the rank or the disk that is slow, or "
                "give it a longer timeout.",
                self._where,
            )

    def hear(self, event: Progress) -> None:
        """Look at the clock as bytes move; what is raised here ends the operation."""
        self.check()

    def interrupt(self, error: BaseException) -> None:
        """Whoever waited for the call was interrupted, so the call is, wherever it looks next."""
        self._interrupt = error

    def check_interrupt(self) -> None:
        """Raise what interrupted whoever waited for the call."""
        if self._interrupt is not None:
            raise type(self._interrupt)(*self._interrupt.args)

    def hung(self) -> CallTimeout:
        """The error for a call that does not even come back to say that its time is over."""
        return CallTimeout(
            f"{self.what} took longer than {self.seconds:g} s and hangs in its storage or behind an earlier call. It "
            "is left behind: it publishes nothing any more, unless it hangs in that very step, and nothing half-done "
            "is ever visible. Look for the rank or the disk that does not answer.",
            self._where,
        )
