"""Subscriptions: one handler of one event, with all that was chosen for it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from model_checkpoint.hooks.errors import HookInvalid
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookEvent, HookPriority

Handler = Callable[[HookContext], Any]
Condition = Callable[[HookContext], bool]
ErrorHandler = Callable[[Exception, HookContext], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HookChoices:
    """What can be chosen for a hook; ``None`` leaves it to the hook itself, then to the default."""

    priority: HookPriority | None = None
    timeout: float | None = None
    async_execution: bool | None = None
    condition: Condition | None = None
    error_handler: ErrorHandler | None = None

    def over(self, below: HookChoices) -> HookChoices:
        """These choices where they were made, those below where not.

        Example:
            >>> HookChoices(timeout=1.0).over(HookChoices(timeout=2.0, async_execution=True)).async_execution
            True
        """
        return HookChoices(
            priority=below.priority if self.priority is None else self.priority,
            timeout=below.timeout if self.timeout is None else self.timeout,
            async_execution=below.async_execution if self.async_execution is None else self.async_execution,
            condition=self.condition or below.condition,
            error_handler=self.error_handler or below.error_handler,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One handler of one event."""

    hook: str
    label: str  # the hook's name, and the method's where the hook has several for one event
    event: HookEvent
    handler: Handler
    priority: HookPriority
    timeout: float | None
    async_execution: bool
    condition: Condition | None
    error_handler: ErrorHandler | None

    @property
    def vetoes_by_failing(self) -> bool:
        """Whether the event must not go on when this hook fails."""
        return self.event.may_be_vetoed and self.priority is HookPriority.CRITICAL


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRegistration:
    """One registered hook: its name, what it subscribed to, and the object behind it, if any."""

    name: str
    subscriptions: tuple[Subscription, ...]
    source: object = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    enabled: bool = True


def subscription(hook: str, event: HookEvent, handler: Handler, choices: HookChoices) -> Subscription:
    """One checked subscription.

    Raises:
        HookInvalid: a choice has a value it does not take, or two of them contradict each other.
    """
    priority = HookPriority.NORMAL if choices.priority is None else choices.priority
    asynchronous = bool(choices.async_execution)
    _check_priority(hook, priority)
    _check_timeout(hook, choices.timeout)
    for word, function, count in (
        ("handler", handler, 1),
        ("condition", choices.condition, 1),
        ("error_handler", choices.error_handler, 2),
    ):
        if function is not None:
            _check_callable(hook, word, function, count)
        if word != "handler" and inspect.iscoroutinefunction(function):
            raise HookInvalid(f"hook {hook!r}: {word} is asked on the spot and cannot be `async def`.")
    if asynchronous and event.may_be_vetoed and priority is HookPriority.CRITICAL:
        raise HookInvalid(
            f"hook {hook!r}: a CRITICAL hook of {event.name} must be waited for, got async_execution=True. Give it a "
            f"timeout instead, a lower priority, or other events."
        )
    return Subscription(
        hook=hook,
        label=hook,
        event=event,
        handler=handler,
        priority=priority,
        timeout=choices.timeout,
        async_execution=asynchronous,
        condition=choices.condition,
        error_handler=choices.error_handler,
    )


def _check_priority(hook: str, priority: object) -> None:
    if not isinstance(priority, HookPriority):
        raise HookInvalid(
            f"hook {hook!r}: priority is one of HookPriority.{', '.join(HookPriority.__members__)}, got {priority!r}."
        )


def _check_timeout(hook: str, timeout: object) -> None:
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
        raise HookInvalid(f"hook {hook!r}: timeout is a number of seconds above 0, such as 0.25, got {timeout!r}.")


def _check_callable(hook: str, word: str, function: object, count: int) -> None:
    """Refuse what could never be called with that many arguments; what has no signature is taken as it is."""
    if not callable(function):
        raise HookInvalid(f"hook {hook!r}: {word} is something to call, got {function!r}.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        expected = "the context" if count == 1 else "the error and the context"
        raise HookInvalid(
            f"hook {hook!r}: {word} {getattr(function, '__name__', function)!r} is called with {expected}, but takes "
            f"{signature} ({error})."
        ) from None
