"""Experiment recovery: what to resume from, on disk before it is needed.

A run that is killed writes no last words, so every checkpoint is recorded when it is saved.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from model_checkpoint.hooks.base_hook import BaseHook
from model_checkpoint.hooks.builtin.grid.recovery_advice import advice_for
from model_checkpoint.hooks.builtin.json_lines import JsonLines
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookPriority

_TOLD = ("step", "epoch", "loss", "val_loss", "path")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRecord:
    """How far an experiment came: its last checkpoint, its last failure after it, and what to do."""

    experiment_id: str | None
    last_checkpoint: dict[str, Any] | None
    failure: str | None
    advice: tuple[str, ...]


class ExperimentRecoveryHook(BaseHook):
    """Records every checkpoint and every failure, and tells what to resume from.

    Example:
        >>> import tempfile
        >>> from model_checkpoint.hooks import HookManager
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     recovery = ExperimentRecoveryHook(f"{folder}/recovery.jsonl")
        ...     manager = HookManager()
        ...     _ = manager.register_hook(recovery)
        ...     _ = manager.fire_hook("after_checkpoint_save", checkpoint_id="c-7", experiment_id="a", step=700)
        ...     ExperimentRecoveryHook(f"{folder}/recovery.jsonl").recovery("a").advice[0]
        'Resume from checkpoint c-7 at step 700.'
    """

    def __init__(
        self,
        recovery_file: str | os.PathLike[str] = "experiment_recovery.jsonl",
        *,
        priority: HookPriority = HookPriority.HIGH,
    ) -> None:
        self.log, self.priority = JsonLines(recovery_file), priority

    def on_init(self) -> None:
        """Record where the experiment runs."""
        self.log.append(
            {"at": _now(), "event": "begin", "pid": os.getpid(), "host": platform.node(), "folder": os.getcwd()}
        )

    def on_after_checkpoint_save(self, context: HookContext) -> None:
        """A checkpoint was saved: from now on it is the one to resume from."""
        self.log.append(_line("checkpoint", context))

    def on_after_checkpoint_load(self, context: HookContext) -> None:
        """The experiment went on from a checkpoint."""
        self.log.append(_line("resumed", context))

    def on_error(self, context: HookContext) -> None:
        """Something failed: record it with what to do."""
        error = context.get("error")
        last = self._last(context.experiment_id)
        self.log.append(_line("failure", context) | {"error": error, "last": last, "advice": advice_for(error, last)})

    def recovery(self, experiment_id: str | None = None) -> RecoveryRecord:
        """What the log has on an experiment, or on the one that wrote last.

        Example:
            >>> ExperimentRecoveryHook("/nowhere/recovery.jsonl").recovery().last_checkpoint is None
            True
        """
        lines = list(self.log)
        if experiment_id is None:
            experiment_id = next((line["experiment_id"] for line in reversed(lines) if line.get("experiment_id")), None)
        own = [line for line in lines if line.get("experiment_id") == experiment_id]
        last = next((line for line in reversed(own) if line["event"] == "checkpoint"), None)
        ended = own[-1] if own and own[-1]["event"] == "failure" else None
        advice = tuple(ended["advice"]) if ended else tuple(advice_for(None, last))
        failure = str(ended["error"]) if ended else None
        return RecoveryRecord(experiment_id=experiment_id, last_checkpoint=last, failure=failure, advice=advice)

    def _last(self, experiment_id: str | None) -> dict[str, Any] | None:
        mine = [line for line in self.log if line["event"] == "checkpoint" and line["experiment_id"] == experiment_id]
        return mine[-1] if mine else None


def _line(event: str, context: HookContext) -> dict[str, Any]:
    told = {key: context.get(key) for key in _TOLD if context.get(key) is not None}
    ids = {"experiment_id": context.experiment_id, "checkpoint_id": context.checkpoint_id}
    return {"at": _now(), "event": event, **ids, **told}


def _now() -> str:
    return datetime.now(UTC).isoformat()
