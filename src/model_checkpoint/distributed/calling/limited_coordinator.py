"""Limited coordinator: the ranks of a program for one call that may take so long and no longer.

Only rank 0 gives up while it waits for words: it tells all others, so that everybody raises the same. Whoever waits for
rank 0 loses patience no later than the limit, and then one rename decides, as whenever a rank is silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model_checkpoint.coordination import Coordinator
from model_checkpoint.distributed.calling.call_limit import CallLimit


class LimitedCoordinator:
    """A coordinator with the limit of one call.

    Example:
        >>> from model_checkpoint.distributed import LocalCoordinator
        >>> LimitedCoordinator(LocalCoordinator(patience=300), CallLimit("a save", seconds=5)).patience
        5
    """

    def __init__(self, inner: Coordinator, limit: CallLimit) -> None:
        self._inner, self._limit = inner, limit
        self.scope = getattr(inner, "scope", inner)

    def __getattr__(self, name: str) -> Any:  # what a coordinator may have besides, such as program_ranks
        return getattr(self._inner, name)

    @property
    def rank(self) -> int:
        """Which of the ranks this process is."""
        return self._inner.rank

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self._inner.world_size

    @property
    def patience(self) -> float:
        """Seconds of silence after which a rank is given up: never more than the call may take."""
        return min(self._inner.patience, self._limit.seconds)

    def put(self, key: str, value: bytes) -> None:
        """Let every rank find ``value`` under ``key``; also when the time is over, so that all learn of it."""
        self._inner.put(key, value)

    def collect(self, keys: Sequence[str], until: float) -> dict[str, bytes]:
        """What is known of ``keys`` when all are there, or at ``until``."""
        self._limit.check() if self._inner.rank == 0 else self._limit.check_interrupt()
        return self._inner.collect(keys, until)
