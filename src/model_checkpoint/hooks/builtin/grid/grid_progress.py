"""Grid progress: one experiment: a line each hundred steps, each checkpoint, each heartbeat, with the time left."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Any

from model_checkpoint import forks
from model_checkpoint.hooks.base_hook import BaseHook
from model_checkpoint.hooks.builtin.json_lines import JsonLines
from model_checkpoint.hooks.errors import HookInvalid
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookPriority
from model_checkpoint.hooks.values.plain_data import plain_data

_LOG = logging.getLogger(__name__)
_MARKS = 32  # the time left is told from the pace of so many written steps


class GridProgressHook(BaseHook):
    """Writes a line of JSON for every ``log_interval`` steps, every checkpoint, best model and error.

    While it is registered a heartbeat comes every ``heartbeat_interval`` seconds with ``seconds_since_step``: a run
    without heartbeats is dead, one with heartbeats and no steps hangs. A disk that refuses a line costs the line.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     progress = GridProgressHook(f"{folder}/progress.jsonl", total_steps=300)
        ...     for step in range(1, 201):
        ...         progress.step(step, loss=1 / step)
        ...     [(line["event"], line["step"], line["loss"]) for line in progress.log]
        [('step', 100, 0.01), ('step', 200, 0.005)]
    """

    def __init__(
        self,
        progress_file: str | os.PathLike[str] = "grid_progress.jsonl",
        *,
        total_steps: int | None = None,
        log_interval: int = 100,
        heartbeat_interval: float | None = 300.0,
        priority: HookPriority = HookPriority.LOW,
    ) -> None:
        if log_interval < 1:
            raise HookInvalid(f"GridProgressHook: log_interval is at least 1, got {log_interval}.")
        if heartbeat_interval is not None and not heartbeat_interval > 0:
            raise HookInvalid(f"GridProgressHook: heartbeat_interval is above 0 or None, got {heartbeat_interval}.")
        self.log, self.total_steps, self.priority = JsonLines(progress_file), total_steps, priority
        self._interval, self._beat = log_interval, heartbeat_interval
        self._lock = forks.lock()
        self._marks: deque[tuple[float, int]] = deque(maxlen=_MARKS)
        self._began = self._stepped = time.monotonic()
        self._state: dict[str, Any] = {"experiment_id": None, "step": None, "loss": None, "best_loss": None}
        self._checkpoints = self._written = 0
        self.lines_lost = 0
        self._stop = threading.Event()
        forks.in_child(self._stay_silent)

    # --- what the training loop tells --------------------------------------------------------------------------------

    def step(self, step: int, *, loss: Any = None, **metrics: Any) -> None:
        """Tell of a finished step; never raises for the sake of the log."""
        now = time.monotonic()
        with self._lock:
            self._stepped = now
            self._take(step, loss)
            if not self._marks:
                self._marks.append((now, step))
            due = step // self._interval > self._written
            if due:
                self._written = step // self._interval
                self._marks.append((now, step))
        if due:
            self._write_if_possible("step", metrics=plain_data(metrics)[0])

    def finish(self, status: str = "completed") -> None:
        """Tell that the experiment is over."""
        self._write_if_possible("end", status=status)

    def seconds_left(self) -> float | None:
        """How long the rest takes at the present pace; ``None`` while that is unknown."""
        with self._lock:
            if self.total_steps is None or len(self._marks) < 2:
                return None
            (first, first_step), (last, last_step) = self._marks[0], self._marks[-1]
            if last_step <= first_step or last <= first:
                return None
            return max(0.0, (self.total_steps - last_step) * (last - first) / (last_step - first_step))

    # --- what the manager tells --------------------------------------------------------------------------------------

    def on_init(self) -> None:
        """Begin the heartbeat."""
        self._write_if_possible("start")
        if self._beat is not None:
            self._stop = threading.Event()
            threading.Thread(target=self._beat_on, args=(self._stop,), name="mckpt-heartbeat", daemon=True).start()

    def on_cleanup(self) -> None:
        """End the heartbeat."""
        self._stop.set()

    def on_after_checkpoint_save(self, context: HookContext) -> None:
        """A checkpoint was saved."""
        with self._lock:
            self._checkpoints += 1
            if context.get("step") is not None:
                self._take(context.get("step"), context.get("loss"))
        self._write("checkpoint", context)

    def on_best_model_update(self, context: HookContext) -> None:
        """A model is the best so far."""
        self._write("best", context)

    def on_error(self, context: HookContext) -> None:
        """Something failed."""
        self._write("error", context, error=context.get("error"))

    # --- lines -------------------------------------------------------------------------------------------------------

    def _take(self, step: int, loss: Any) -> None:
        self._state["step"] = step
        if loss is None:
            return
        number = float(loss)
        self._state["loss"] = number
        best = self._state["best_loss"]
        if number == number and (best is None or number < best):
            self._state["best_loss"] = number

    def _write(self, event: str, context: HookContext | None = None, **more: Any) -> None:
        left, now = self.seconds_left(), time.monotonic()
        if context is not None and context.experiment_id is not None:
            self._state["experiment_id"] = context.experiment_id
        with self._lock:
            line = {"at": _stamp(0.0), "event": event, **self._state, "total_steps": self.total_steps}
            line["checkpoints_saved"] = self._checkpoints
            line["elapsed_seconds"] = round(now - self._began, 3)
            line["seconds_since_step"] = round(now - self._stepped, 3)
        if context is not None:
            line["checkpoint_id"] = context.checkpoint_id
        if left is not None:
            line |= {"seconds_left": round(left, 3), "estimated_completion": _stamp(left)}
        self.log.append({**line, **more})

    def _write_if_possible(self, event: str, **more: Any) -> None:
        try:
            self._write(event, **more)
        except OSError as error:
            self.lines_lost += 1
            level = logging.WARNING if self.lines_lost == 1 else logging.DEBUG
            _LOG.log(level, "%s: a line of progress was lost: %s", self.log.path, error)

    def _beat_on(self, stop: threading.Event) -> None:
        while not stop.wait(self._beat):
            self._write_if_possible("heartbeat")

    def _stay_silent(self) -> None:
        """A forked child is not the experiment, and has no heart."""
        self._stop = threading.Event()


def _stamp(ahead: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=ahead)).isoformat()
