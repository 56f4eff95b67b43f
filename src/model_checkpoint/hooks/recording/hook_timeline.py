"""Hook timeline: what each hook cost on each event."""

from __future__ import annotations

from collections import deque

from model_checkpoint.hooks.values.hook_run import HookRun


class HookTimeline:
    """The last runs of all hooks, oldest first.

    Example:
        >>> HookTimeline(100).runs(checkpoint_id="c-1")
        ()
    """

    def __init__(self, most: int) -> None:
        self._runs: deque[HookRun] = deque(maxlen=most)

    def add(self, run: HookRun) -> None:
        """Remember one run; the oldest makes room."""
        self._runs.append(run)

    def runs(self, checkpoint_id: str | None = None) -> tuple[HookRun, ...]:
        """All that are remembered, or those of one checkpoint."""
        runs = tuple(self._runs.copy())  # one step under the interpreter's lock: no run is added meanwhile
        return runs if checkpoint_id is None else tuple(run for run in runs if run.checkpoint_id == checkpoint_id)
