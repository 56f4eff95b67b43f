"""Rate limits: how many requests a client may make in any minute; exact, and in memory that does not grow."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Hashable

from model_checkpoint import forks
from model_checkpoint.performance.lru import LRUCache

MINUTE = 60.0
_MOST_CLIENTS = 10_000


class RateLimiter:
    """Counts requests by key over the last minute.

    Example:
        >>> limiter = RateLimiter(clock=lambda: 0.0)
        >>> [limiter.wait("client", limit=2) for _ in range(3)]
        [0.0, 0.0, 60.0]
    """

    def __init__(self, *, window: float = MINUTE, clock: Callable[[], float] = time.monotonic) -> None:
        self._window, self._clock = window, clock
        self._lock = forks.lock()
        self._past = LRUCache(_MOST_CLIENTS, window, clock=clock)

    def wait(self, key: Hashable, *, limit: int) -> float:
        """0.0, and the request counts; or how many seconds it comes too early, and it does not count."""
        with self._lock:
            now = self._clock()
            past: deque[float] = self._past.get(key) or deque()
            while past and past[0] <= now - self._window:
                past.popleft()
            if len(past) >= limit:
                return max(past[-limit] + self._window - now, math.ulp(now))
            past.append(now)
            self._past.set(key, past)
            return 0.0
