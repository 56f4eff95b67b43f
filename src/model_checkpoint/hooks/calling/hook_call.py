"""Hook call: one hook, from its condition to its error handler; whatever it raises stays in here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from model_checkpoint.hooks.calling.timeout_threads import LostThreads
from model_checkpoint.hooks.calling.verdicts import HookVerdict, verdict_of
from model_checkpoint.hooks.errors import HookBusy, HookPoolDead, HookTimeout
from model_checkpoint.hooks.registering.subscriptions import Subscription
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_result import FailureKind, HookFailure
from model_checkpoint.hooks.values.hook_run import HookOutcome

_GRACE = 0.1  # seconds for a coroutine to end itself
_SKIPPED = {"skipped": True}
_KINDS: dict[type[Exception], FailureKind] = {
    HookTimeout: FailureKind.TIMEOUT,
    HookBusy: FailureKind.BUSY,
    HookPoolDead: FailureKind.POOL,
}
_OUTCOMES = {FailureKind.TIMEOUT: HookOutcome.TIMED_OUT, FailureKind.ERROR: HookOutcome.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport:
    """What came of one call."""

    outcome: HookOutcome
    seconds: float
    value: Any = None
    verdict: HookVerdict = field(default_factory=HookVerdict)
    failure: HookFailure | None = None


def call_hook(subscription: Subscription, context: HookContext, threads: LostThreads) -> CallReport:
    """Call one hook and report; only interrupts and the end of the program come through.

    The hook works on a copy of the context's dictionaries: one that fails midway, or comes too late, leaves nothing in
    what the others go on with.
    """
    began, own = time.perf_counter(), context.copy()
    try:
        value = _value(subscription, own, threads)
        verdict = verdict_of(value)
    except Exception as error:  # noqa: BLE001  # a hook may raise anything, and none may end a save by that
        return _failed(subscription, context, error, time.perf_counter() - began)
    own.update(verdict.updates)
    context.adopt(own)
    return CallReport(outcome=_outcome(verdict), seconds=time.perf_counter() - began, value=value, verdict=verdict)


def _value(subscription: Subscription, context: HookContext, threads: LostThreads) -> Any:
    """What the hook returns: called right here unless it has a time limit or is a coroutine."""
    timeout = subscription.timeout
    if timeout is None and not iscoroutinefunction(subscription.handler):
        value = _body(subscription, context)
        if isawaitable(value):  # a plain function that returned a coroutine
            return threads.run(subscription.hook, lambda: _awaited(value, None), timeout=None)
        return value
    # a coroutine is ended by its own loop; its thread is left behind only if it blocks that loop
    patience = _GRACE if timeout is not None and iscoroutinefunction(subscription.handler) else 0.0
    limit = None if timeout is None else timeout + patience
    return threads.run(subscription.hook, lambda: _awaited(_body(subscription, context), timeout), timeout=limit)


def _body(subscription: Subscription, context: HookContext) -> Any:
    if subscription.condition is not None and not subscription.condition(context):
        return _SKIPPED
    return subscription.handler(context)


def _awaited(value: Any, timeout: float | None) -> Any:
    """What an awaitable comes to, in a loop of its own; the caller's thread may have one that is busy."""
    return asyncio.run(_await(value, timeout)) if isawaitable(value) else value


async def _await(value: Awaitable[Any], timeout: float | None) -> Any:
    """Await it; unlike a thread, a coroutine can be ended when its time is over, so that nothing is left behind."""
    try:
        async with asyncio.timeout(timeout) as limit:
            return await value
    except TimeoutError as error:
        if limit.expired():
            raise HookTimeout(f"the coroutine of a hook did not return within {timeout:g} s; it was ended.") from error
        raise


def _outcome(verdict: HookVerdict) -> HookOutcome:
    if verdict.stop:
        return HookOutcome.STOPPED
    return HookOutcome.SKIPPED if verdict.skipped else HookOutcome.DONE


def _failed(subscription: Subscription, context: HookContext, error: Exception, seconds: float) -> CallReport:
    kind = _KINDS.get(type(error), FailureKind.ERROR)
    failure = HookFailure(hook=subscription.hook, event=subscription.event, kind=kind, error=error, seconds=seconds)
    if subscription.error_handler is not None:
        try:
            answer = subscription.error_handler(error, context)
            verdict = verdict_of(answer)
        except Exception as second:  # noqa: BLE001  # an error handler may raise anything as well
            error.add_note(f"its error handler failed too: {second!r}")
        else:
            if answer is not None:
                context.update(verdict.updates)
                outcome = HookOutcome.STOPPED if verdict.stop else HookOutcome.HANDLED
                return CallReport(outcome=outcome, seconds=seconds, value=answer, verdict=verdict)
    return CallReport(outcome=_OUTCOMES.get(kind, HookOutcome.NOT_CALLED), seconds=seconds, failure=failure)
