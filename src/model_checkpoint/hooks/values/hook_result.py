"""Hook result: what a firing gives back, and what went wrong in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from model_checkpoint.hooks.errors import HookVetoed
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookEvent
from model_checkpoint.hooks.values.plain_data import described


class FailureKind(Enum):
    """Why a hook did not do what it should."""

    ERROR = "error"  # it raised
    TIMEOUT = "timeout"  # it did not return in time
    BUSY = "busy"  # it was not called: its last call still runs
    POOL = "pool"  # it was not called: no thread for it
    LATE_VETO = "late veto"  # it said no from the background, where nobody waits for it


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFailure:
    """One hook that failed on one event; the others went on."""

    hook: str
    event: HookEvent
    kind: FailureKind
    error: Exception
    seconds: float

    def __str__(self) -> str:
        return f"{self.hook} on {self.event.name}: {described(self.error)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResult:
    """What came of firing one event. It is true unless a hook stopped it; ``stopped_by`` says which.

    ``results`` has what each hook returned, ``errors`` those that failed, ``background`` those that still run,
    ``context`` what the hooks made of the data.

    Example:
        >>> result = HookResult(event=HookEvent.BEFORE_CHECKPOINT_SAVE, stopped_by="guard")
        >>> bool(result)
        False
        >>> result.raise_if_vetoed()
        Traceback (most recent call last):
        ...
        model_checkpoint.hooks.errors.HookVetoed: BEFORE_CHECKPOINT_SAVE: hook 'guard' said no, so nothing was done. Ask
        it why, or disable it with disable_hook('guard').
    """

    event: HookEvent
    context: HookContext = field(default_factory=HookContext)
    results: Mapping[str, Any] = field(default_factory=dict)
    errors: tuple[HookFailure, ...] = ()
    stopped_by: str | None = None
    background: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        """Whether no hook stopped the event; failures that stopped nothing are in ``errors``."""
        return self.stopped_by is None

    def __bool__(self) -> bool:
        return self.success

    def raise_if_vetoed(self) -> None:
        """Raise :class:`HookVetoed`, which says who stopped it and why, unless nobody did."""
        if self.stopped_by is None:
            return
        why = [described(each.error) for each in self.errors if each.hook == self.stopped_by]
        raise HookVetoed(
            f"{self.event.name}: hook {self.stopped_by!r} {f'failed ({why[0]})' if why else 'said no'}, so nothing was "
            f"done. Ask it why, or disable it with disable_hook({self.stopped_by!r}).",
            hook=self.stopped_by,
            event=self.event.name,
        )
