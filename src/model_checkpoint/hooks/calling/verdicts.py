"""Verdicts: what a returned value means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model_checkpoint.hooks.values.hook_result import HookResult


@dataclass(frozen=True, slots=True, kw_only=True)
class HookVerdict:
    """What one hook said: whether to stop, what to change, whether it did anything at all."""

    stop: bool = False
    skipped: bool = False
    updates: Mapping[str, Any] = field(default_factory=dict)


def verdict_of(value: Any) -> HookVerdict:
    """Read what a hook returned; ``None`` and everything that is not said here means: go on.

    Raises:
        TypeError: ``context_updates`` is no dictionary of names.

    Example:
        >>> verdict_of(False).stop, verdict_of({"continue": False}).stop, verdict_of(None).stop, verdict_of(0).stop
        (True, True, False, False)
        >>> verdict_of({"context_updates": {"step": 3}}).updates
        {'step': 3}
    """
    if isinstance(value, Mapping):
        return HookVerdict(
            stop=not value.get("continue", True),
            skipped=value.get("skipped") is True,
            updates=_checked(value.get("context_updates")),
        )
    return HookVerdict(stop=_says_no(value))


def _says_no(value: Any) -> bool:
    """False, a result that was stopped, or a comparison of arrays that came out as one False."""
    if isinstance(value, (bool, HookResult)):
        return not value
    is_one_bool = getattr(value, "shape", None) == () and str(getattr(value, "dtype", "")).endswith("bool")
    return is_one_bool and not bool(value)


def _checked(updates: Any) -> Mapping[str, Any]:
    if updates is None:
        return {}
    if isinstance(updates, Mapping) and all(isinstance(key, str) for key in updates):
        return updates
    raise TypeError(f"context_updates is a dictionary by name, got {type(updates).__name__}: {updates!r:.100}")
