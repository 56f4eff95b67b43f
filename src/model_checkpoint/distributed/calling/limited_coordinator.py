"""Limited coordinator: the ranks of a program for one call that may take so long and no longer.

At the end of the time rank 0 names whoever it has not heard of, and tells all others, so that everybody raises the
same. Whoever waits for rank 0 waits a little longer for that word, and then gives rank 0 up, as whenever a rank is
silent.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from model_checkpoint.coordination import Coordinator
from model_checkpoint.distributed.calling.call_limit import CallLimit, Settle, Touched
from model_checkpoint.errors import RankLost

_TELLING = 2.0  # seconds in which rank 0 ends a call whose time is over, and tells the others


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

    @property
    def telling(self) -> float:
        """Seconds after the end in which the others still wait for the word of rank 0."""
        return min(self.patience, _TELLING) if self.world_size > 1 else 0.0

    def put(self, key: str, value: bytes) -> None:
        """Let every rank find ``value`` under ``key``; also when the time is over, so that all learn of it."""
        self._inner.put(key, value)

    def collect(self, keys: Sequence[str], until: float) -> dict[str, bytes]:
        """What is known of ``keys`` when all are there, or at ``until``; raises if some are not at the end."""
        self._limit.check_cancel() if self.rank == 0 else self._limit.check_interrupt()
        end = self._limit.end + (self.telling if self.rank else 0.0)
        over = time.monotonic() >= end
        found = self._inner.collect(keys, min(until, end))
        if over and (missing := [key for key in keys if key not in found]):
            raise self._late(sorted({int(key.rpartition("/")[2]) for key in missing}))
        return found

    def _late(self, ranks: Sequence[int]) -> Exception:
        """Rank 0 says so to all; whoever waits for rank 0 must find out by itself what became of the call."""
        error = self._limit.late(ranks)
        return error if self.rank == 0 else RankLost(error.message, error.checkpoint_path, ranks=ranks)

    def changing(self, touched: Touched) -> AbstractContextManager[None]:
        """Around each change of live objects."""
        return self._limit.changing(touched)

    def deciding(self, settle: Settle) -> None:
        """Before this rank votes or publishes."""
        self._limit.deciding(settle)
