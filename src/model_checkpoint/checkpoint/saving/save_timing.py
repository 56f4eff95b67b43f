"""Save timing: what one save cost, stretch by stretch and hook by hook, for the audit trail."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from model_checkpoint.hooks import HookRun

_MOST_HOOKS = 100


class SaveTiming:
    """The stretches of one save in seconds from its beginning; during ``stall`` the training waited.

    The save began ``ago`` seconds before this is made.

    Example:
        >>> timing = SaveTiming()
        >>> timing.stretch("writing")
        >>> [one["kind"] for one in timing.told(())["segments"]]
        ['stall', 'writing']
    """

    def __init__(self, *, ago: float = 0.0) -> None:
        self.began_at = time.time() - ago
        self._start = self._last = time.perf_counter() - ago
        self._segments: list[dict[str, Any]] = []
        self._stall: float | None = None

    def stretch(self, kind: str) -> None:
        """What was done since the last stretch ended, or the beginning, was this."""
        now = time.perf_counter()
        self._segments.append({"kind": kind, "from": self._last - self._start, "dur": now - self._last})
        self._last = now

    @property
    def elapsed(self) -> float:
        """Seconds until the last stretch ended."""
        return self._last - self._start

    def stalled(self, seconds: float) -> None:
        """So long the training waited; in a save that nobody waits for less than all of it."""
        self._stall = seconds

    def told(self, hooks: Sequence[HookRun]) -> dict[str, Any]:
        """All of it as plain values; without a word about a stall, all of it was one."""
        stall = time.perf_counter() - self._start if self._stall is None else self._stall
        return {
            "began_at": self.began_at,
            "segments": [{"kind": "stall", "from": 0.0, "dur": stall}, *self._segments],
            "hooks": [_told(one) for one in hooks[:_MOST_HOOKS]],
        }


def _told(run: HookRun) -> dict[str, Any]:
    return {
        "hook": run.hook,
        "event": run.event.name,
        "priority": run.priority.name,
        "began_at": run.began_at,
        "seconds": run.seconds,
        "outcome": run.outcome.value,
    }
