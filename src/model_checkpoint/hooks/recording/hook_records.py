"""Hook records: all that is remembered of every call, in one place."""

from __future__ import annotations

import logging

from model_checkpoint import forks
from model_checkpoint.hooks.recording.dead_letters import DeadLetters
from model_checkpoint.hooks.recording.hook_statistics import HookStatistics
from model_checkpoint.hooks.recording.hook_timeline import HookTimeline
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_result import FailureKind, HookFailure
from model_checkpoint.hooks.values.hook_run import HookRun

_LOG = logging.getLogger(__name__)
_MOST_RUNS, _MOST_LETTERS = 10_000, 1000


class HookRecords:
    """The timeline, the statistics and the dead letters of one manager.

    Example:
        >>> HookRecords().pool_failures
        0
    """

    def __init__(self) -> None:
        self.timeline = HookTimeline(_MOST_RUNS)
        self.statistics = HookStatistics()
        self.letters = DeadLetters(_MOST_LETTERS)
        self.pool_failures = 0
        self._lock = forks.lock()

    def add(self, run: HookRun, failure: HookFailure | None, context: HookContext) -> None:
        """Remember one call; a failure is logged and becomes a dead letter."""
        self.timeline.add(run)
        self.statistics.add(run)
        if failure is None:
            return
        if failure.kind is FailureKind.POOL:
            with self._lock:
                self.pool_failures += 1
        letter = self.letters.add(failure, context)
        # as text: a record that carries the error carries its frames, and with them the model
        _LOG.error("hook %s (%s; dead letter %d)\n%s", str(failure), failure.kind.value, letter.id, letter.details)
