"""Metric queue: a logging call leaves its metrics here and returns; one thread carries them on.

The queue is bounded in points. What happens when it is full is chosen: the call waits, or its metrics are dropped and
counted. The thread wakes 100 ms after the first metrics, or at once for 2,000 points or a flush. In a forked child the
queue is empty and has no thread: what was on its way belongs to the parent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from model_checkpoint import forks
from model_checkpoint.tracking.errors import FlushTimeout, TrackerClosed

log = logging.getLogger("model_checkpoint.tracking")

GATHER_SECONDS = 0.1
GATHER_POINTS = 2_000
MOST_POINTS = 20_000  # in one batch, so that one transaction never keeps other writers waiting for long
CAPACITY = 500_000  # points; some 60 MB
_NEVER = 1 << 62

WhenFull = Literal["block", "drop"]


class Logged(NamedTuple):
    """The metrics of one call."""

    at: float  # unix time
    step: int
    values: dict[str, float]


Deliver: TypeAlias = Callable[[Sequence[Logged], bool], None]
"""Takes a batch, and whether somebody waits for it. Called with an empty batch when nothing is logged."""


class MetricQueue:
    """Logged metrics on their way to ``deliver``, which one thread calls.

    Args:
        deliver: See :data:`Deliver`.
        idle_seconds: How often ``deliver`` is called when nothing is logged.
        gather_seconds: How long after the first metrics it is called, so that more come along.
        capacity: Most points that wait.
        when_full: ``"block"`` the call until there is room, or ``"drop"`` its metrics and count them in ``dropped``.

    Example:
        >>> seen = []
        >>> queue = MetricQueue(lambda batch, urgent: seen.extend(batch))
        >>> queue.put(Logged(1.0, 7, {"loss": 0.5}))
        >>> queue.flush()
        >>> seen
        [Logged(at=1.0, step=7, values={'loss': 0.5})]
        >>> queue.close()
    """

    def __init__(
        self,
        deliver: Deliver,
        *,
        idle_seconds: float = 10.0,
        gather_seconds: float = GATHER_SECONDS,
        capacity: int = CAPACITY,
        when_full: WhenFull = "block",
    ) -> None:
        self._deliver, self._idle_seconds, self._gather_seconds = deliver, idle_seconds, gather_seconds
        self._capacity, self._when_full = capacity, when_full
        self._lock = forks.lock()
        self._closed = False
        self._begin()
        forks.in_child(self._begin)

    def _begin(self) -> None:
        self._changed = threading.Condition(self._lock)
        self._pending: list[Logged] = []
        self._points = 0  # in pending
        self._accepted = self._settled = 0  # calls taken, and those of them that were delivered
        self._asked = self._answered = 0  # flushes
        self._target = 0  # calls somebody waits for
        self._alarm = 1  # so many points make a call wake the thread
        self._last = 0.0
        self._thread: threading.Thread | None = None
        self.dropped = 0  # points, by this process

    def put(self, logged: Logged) -> None:
        """Take the metrics of one call; returns at once unless the queue is full and may block."""
        points = len(logged.values)
        with self._lock:
            if self._closed:
                raise TrackerClosed("tracker: it is closed. Nothing was logged; resume the run, or log before closing.")
            if self._points >= self._capacity and not self._make_room(points):
                return
            if logged.at <= self._last:  # no two calls of one moment: time and step tell points apart
                logged = logged._replace(at=self._last + 1e-6)
            self._last = logged.at
            self._pending.append(logged)
            self._accepted += 1
            self._points += points
            if self._points >= self._alarm:
                self._wake()

    def _make_room(self, points: int) -> bool:
        """Wait until there is room, or count what is dropped; the lock is held."""
        if self._when_full == "drop":
            self.dropped += points
            return False
        self._wake()
        self._changed.wait_for(lambda: self._points < self._capacity)
        return True

    def _wake(self) -> None:
        """Have the thread look; the lock is held."""
        self._alarm = _NEVER
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="mckpt-metrics", daemon=True)
            thread.start()
            self._thread = thread
        self._changed.notify_all()

    def start(self) -> None:
        """Start the thread before the first call, so that it can do what is due without any."""
        with self._lock:
            self._wake()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything logged before this call was delivered.

        Raises:
            FlushTimeout: It was not within ``timeout`` seconds.
        """
        with self._lock:
            if self._thread is None and not self._pending:
                return
            target = self._target = self._accepted
            ticket = self._asked = self._asked + 1
            self._wake()
            done = self._changed.wait_for(lambda: self._settled >= target and self._answered >= ticket, timeout)
            waiting = target - self._settled
        if not done:
            raise FlushTimeout(
                f"tracker: {waiting} logging calls are still on their way after {timeout} s; they go on. Wait longer, "
                "or look whether the database answers."
            )

    def close(self, timeout: float | None = None) -> None:
        """Deliver what waits, then end the thread; a second close does nothing.

        Raises:
            FlushTimeout: Not within ``timeout`` seconds; the thread goes on until all is delivered.
        """
        with self._lock:
            already, self._closed = self._closed, True
        if already:
            return
        try:
            self.flush(timeout)
        finally:
            with self._lock:
                thread, self._thread = self._thread, None
                self._changed.notify_all()
        if thread is not None:
            thread.join(timeout)

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._lock:
                self._wait()
                if self._thread is not me and not self._pending:
                    return
                batch, ticket, urgent = self._take(), self._asked, self._is_hurried()
            try:
                self._deliver(batch, urgent)
            except Exception:  # this thread is the only one that delivers, and nobody would see it end
                log.exception("%d logging calls were lost on their way", len(batch))
                self.dropped += sum(len(logged.values) for logged in batch)
            with self._lock:
                self._settled += len(batch)
                self._answered = ticket
                self._changed.notify_all()

    def _wait(self) -> None:
        """Sleep until there is something to do; the lock is held."""
        if not self._pending:
            self._sleep(self._idle_seconds, points=1)
        if self._pending:
            self._sleep(self._gather_seconds, points=GATHER_POINTS)
        self._alarm = _NEVER

    def _sleep(self, seconds: float, *, points: int) -> None:
        """Sleep until so many points wait, somebody asks for a flush, or the time is over; the lock is held."""
        end = time.monotonic() + seconds
        while self._points < points and not self._is_hurried():
            self._alarm = points
            if not self._changed.wait(max(0.0, end - time.monotonic())):
                return

    def _is_hurried(self) -> bool:
        return self._asked > self._answered or self._settled < self._target or self._thread is None

    def _take(self) -> list[Logged]:
        """The next batch; the lock is held."""
        count = points = 0
        for logged in self._pending:
            if points >= MOST_POINTS:
                break
            points += len(logged.values)
            count += 1
        batch, self._pending = self._pending[:count], self._pending[count:]
        self._points -= points
        self._changed.notify_all()  # there is room again
        return batch
