"""Background calls: the bounded queue of calls that nobody waits for."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from model_checkpoint import forks
from model_checkpoint.hooks.errors import HookPoolDead

_LOG = logging.getLogger(__name__)


class BackgroundCalls:
    """Up to ``max_workers`` threads that work off a queue of at most ``max_queued`` calls, in their order.

    Example:
        >>> heard = []
        >>> calls = BackgroundCalls(max_workers=2, max_queued=10)
        >>> calls.submit(lambda: heard.append("one"))
        >>> calls.flush(timeout=10.0), heard
        (True, ['one'])
        >>> calls.close(timeout=10.0)
        True
    """

    def __init__(self, *, max_workers: int, max_queued: int) -> None:
        self._max_workers, self._max_queued = max_workers, max_queued
        self._changed = forks.condition()
        self._begin_anew()
        forks.in_child(self._begin_anew)

    def _begin_anew(self) -> None:
        """What waits in the queue of a parent is the parent's to call."""
        self._queue: deque[Callable[[], None]] = deque()
        self._threads = self._running = 0
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many calls are not over."""
        return len(self._queue) + self._running

    def submit(self, call: Callable[[], None]) -> None:
        """Put one call into the queue; it must not raise.

        Raises:
            HookPoolDead: closed, the queue is full, or the system has no thread.
        """
        with self._changed:
            if self._closed:
                raise HookPoolDead("the hook manager is closed; the hook was not called.")
            if len(self._queue) >= self._max_queued:
                raise HookPoolDead(
                    f"{len(self._queue)} calls of background hooks wait already; this one was not called. Find out "
                    f"which hook hangs (timeline, get_performance_stats), and give it a timeout."
                )
            self._queue.append(call)
            if self._threads < self._max_workers and self._running + len(self._queue) > self._threads:
                self._grow(call)
            self._changed.notify()

    def _grow(self, call: Callable[[], None]) -> None:
        try:
            threading.Thread(target=self._work, name="mckpt-hook-background", daemon=True).start()
        except RuntimeError as error:  # no thread to be had: fine as long as one works the queue off
            if not self._threads:
                self._queue.remove(call)
                raise HookPoolDead(f"no thread for background hooks: {error}. The hook was not called.") from error
            return
        self._threads += 1

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    self._threads -= 1
                    return
                call = self._queue.popleft()
                self._running += 1
            try:
                call()
            except BaseException:  # noqa: BLE001  # a thread of ours must not die of somebody's hook
                _LOG.exception("a background hook ended its call in a way that should not be possible")
            with self._changed:
                self._running -= 1
                self._changed.notify_all()
            del call  # its context must not live until the next one comes

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until nothing is queued or running; whether that came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.waiting, timeout)

    def close(self, timeout: float | None = None) -> bool:
        """Take no more calls, and wait for those there are; whether all were over in time. The others are dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        drained = self.flush(timeout)
        with self._changed:
            if self._queue:
                _LOG.error("%d calls of background hooks were dropped when the manager closed", len(self._queue))
            self._queue.clear()
        return drained
