"""Hook run: what one call of one hook cost, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from model_checkpoint.hooks.values.hook_event import HookEvent, HookPriority


class HookOutcome(Enum):
    """How a call ended."""

    DONE = "done"
    SKIPPED = "skipped"  # its condition did not hold
    STOPPED = "stopped"  # it said no
    HANDLED = "handled"  # it failed, and its error handler gave an answer in its place
    FAILED = "failed"
    TIMED_OUT = "timed out"
    NOT_CALLED = "not called"  # no thread for it, or its last call still runs


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRun:
    """One call: ``seconds`` is what the hook took, ``held`` how long whoever fired the event waited for it.

    Example:
        >>> run = HookRun(hook="upload", event=HookEvent.AFTER_CHECKPOINT_SAVE, priority=HookPriority.LOW, began_at=0.0,
        ...               seconds=2.0, held=0.0, outcome=HookOutcome.DONE, checkpoint_id="c-1")
        >>> str(run)
        'AFTER_CHECKPOINT_SAVE  upload  done  2000.0 ms, held 0.0 ms'
    """

    hook: str
    event: HookEvent
    priority: HookPriority
    began_at: float
    seconds: float
    held: float
    outcome: HookOutcome
    checkpoint_id: str | None = None
    experiment_id: str | None = None

    def __str__(self) -> str:
        return (
            f"{self.event.name}  {self.hook}  {self.outcome.value}  {self.seconds * 1e3:.1f} ms, "
            f"held {self.held * 1e3:.1f} ms"
        )
