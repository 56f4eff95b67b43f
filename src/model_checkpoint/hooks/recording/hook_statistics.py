"""Hook statistics: counts and times of each hook."""

from __future__ import annotations

from collections import Counter
from typing import Any

from model_checkpoint import forks
from model_checkpoint.hooks.values.hook_run import HookOutcome, HookRun

_FAILED = (HookOutcome.FAILED, HookOutcome.TIMED_OUT, HookOutcome.NOT_CALLED)


class HookStatistics:
    """Sums over all runs of each hook; they stay when it goes.

    Example:
        >>> HookStatistics().of_all()
        {}
    """

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._hooks: dict[str, _HookSums] = {}

    def add(self, run: HookRun) -> None:
        """Count one run."""
        with self._lock:
            if run.hook not in self._hooks:
                self._hooks[run.hook] = _HookSums()
            self._hooks[run.hook].add(run)

    def of_all(self) -> dict[str, dict[str, Any]]:
        """Counts and seconds by hook."""
        with self._lock:
            return {name: sums.told() for name, sums in self._hooks.items()}


class _HookSums:
    def __init__(self) -> None:
        self._outcomes: Counter[HookOutcome] = Counter()
        self._seconds = self._held = self._longest = 0.0
        self._shortest = float("inf")

    def add(self, run: HookRun) -> None:
        self._outcomes[run.outcome] += 1
        self._held += run.held
        self._seconds += run.seconds
        self._longest, self._shortest = max(self._longest, run.seconds), min(self._shortest, run.seconds)

    def told(self) -> dict[str, Any]:
        calls = self._outcomes.total()
        return {
            "total_calls": calls,
            "failed_calls": sum(self._outcomes[each] for each in _FAILED),
            "timeouts": self._outcomes[HookOutcome.TIMED_OUT],
            "vetoes": self._outcomes[HookOutcome.STOPPED],
            "skipped": self._outcomes[HookOutcome.SKIPPED],
            "total_time": self._seconds,
            "held_time": self._held,
            "avg_time": self._seconds / calls,
            "min_time": self._shortest,
            "max_time": self._longest,
        }
