"""Limited coordinator: the ranks of a program for one call that may take so long and no longer.

At the end of the time rank 0 names whoever it has not heard of, and tells all others, so that everybody raises the
same. Whoever waits for rank 0 waits a little longer for that word, and then gives rank 0 up, as whenever a rank is
silent. Which error that is depends on what has ended the wait, the patience or the limit, never on whose clock is read.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from model_checkpoint.coordination import Coordinator
from model_checkpoint.distributed.calling.call_limit import CallLimit, Outcome, Settle, Touched
from model_checkpoint.distributed.errors import CallTimeout
from model_checkpoint.errors import RankLost

_TELLING = 2.0  # seconds in which rank 0 ends a call whose time is over, and tells the others
_NEVER = 60.0  # seconds of silence after the end of a call, which nobody waits for


class LateLeader(RankLost):
    """Rank 0 did not end a call in time; all ranks raise ``told_as`` of it, once they know what became of the call."""

    def __init__(self, told_as: CallTimeout) -> None:
        super().__init__(told_as.message, told_as.checkpoint_path, ranks=told_as.ranks)
        self.told_as = told_as


class LimitedCoordinator:
    """A coordinator with the limit of one call.

    Example:
        >>> from model_checkpoint.distributed import LocalCoordinator
        >>> LimitedCoordinator(LocalCoordinator(patience=3), CallLimit("a save", seconds=5)).patience
        3
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
        """Seconds of silence after which a rank is given up; if the call may take less, its limit alone ends it."""
        patience = self._inner.patience
        return patience if patience < self._limit.seconds else self._limit.seconds + _NEVER

    @property
    def telling(self) -> float:
        """Seconds after the end in which the others still wait for the word of rank 0."""
        return min(self._inner.patience, self._limit.seconds, _TELLING) if self.world_size > 1 else 0.0

    def put(self, key: str, value: bytes) -> None:
        """Let every rank find ``value`` under ``key``; also when the time is over, so that all learn of it."""
        with nullcontext() if "/beat/" in key else self._limit.waiting_for([0]):  # who keeps what is said
            self._inner.put(key, value)

    def collect(self, keys: Sequence[str], until: float) -> dict[str, bytes]:
        """What is known of ``keys`` when all are there, or at ``until``; raises if who waits for them may no longer."""
        now, end = time.monotonic(), self._limit.end + (self.telling if self.rank else 0.0)
        looks = until <= now
        if not looks:
            self._limit.check_cancel() if self.rank == 0 else self._limit.check_interrupt()
        with self._limit.waiting_for(_speakers(keys)):
            found = self._inner.collect(keys, until if looks else min(until, end))
            missing = [key for key in keys if key not in found]
            if missing and not looks and now >= end:  # who was stopped has looked for the end of the call before
                away = now > self._limit.end + self.telling  # so late that the others have given rank 0 up
                raise self._late([0] if away else _speakers(missing))
        return found

    def _late(self, ranks: Sequence[int]) -> Exception:
        """Rank 0 says so to all; whoever waits for rank 0 must find out by itself what became of the call."""
        error = self._limit.late(ranks)
        return error if self.rank == 0 else LateLeader(error)

    def changing(self, touched: Touched) -> AbstractContextManager[None]:
        """Around each change of live objects."""
        return self._limit.changing(touched)

    def deciding(self, settle: Settle) -> None:
        """Before this rank votes or publishes."""
        self._limit.deciding(settle)

    def conversing(self, outcome: Outcome) -> None:
        """When a conversation begins."""
        self._limit.conversing(outcome)


def _speakers(keys: Sequence[str]) -> list[int]:
    """The ranks whose words these are."""
    return sorted({int(key.rpartition("/")[2]) for key in keys})
