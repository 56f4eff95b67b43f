"""Firing: one event from the first hook to the last: order, veto, isolation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from model_checkpoint.hooks.calling.background_calls import BackgroundCalls
from model_checkpoint.hooks.calling.hook_call import CallReport, call_hook
from model_checkpoint.hooks.calling.timeout_threads import LostThreads
from model_checkpoint.hooks.errors import HookPoolDead, HookVetoed
from model_checkpoint.hooks.registering.subscriptions import Subscription
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookEvent
from model_checkpoint.hooks.values.hook_result import FailureKind, HookFailure, HookResult
from model_checkpoint.hooks.values.hook_run import HookOutcome, HookRun

Record = Callable[[HookRun, HookFailure | None, HookContext], None]


class Firing:
    """Calls the hooks of one event, first those that are waited for, then the others.

    ``record`` hears of every call; ``background`` is ``None`` where every hook is to be waited for.
    """

    def __init__(
        self, context: HookContext, *, threads: LostThreads, background: BackgroundCalls | None, record: Record
    ) -> None:
        self._context, self._threads, self._background, self._record = context, threads, background, record
        self._results: dict[str, Any] = {}
        self._errors: list[HookFailure] = []
        self._started: list[str] = []

    def run(self, event: HookEvent, subscriptions: tuple[Subscription, ...]) -> HookResult:
        """Call them, until one stops the event."""
        stopped_by = None
        for each in subscriptions:
            if not self._goes_to_background(each) and not self._call(each):
                stopped_by = each.hook
                break
        else:
            for each in filter(self._goes_to_background, subscriptions):
                self._start(each)
        return HookResult(
            event=event,
            context=self._context,
            results=self._results,
            errors=tuple(self._errors),
            stopped_by=stopped_by,
            background=tuple(self._started),
        )

    def _goes_to_background(self, each: Subscription) -> bool:
        return each.async_execution and self._background is not None

    def _call(self, each: Subscription) -> bool:
        """Call one hook and wait for it; whether the event goes on."""
        began_at = time.time()
        report = call_hook(each, self._context, self._threads)
        if report.failure is None and not report.verdict.skipped:
            self._results[each.label] = report.value
        if report.failure is not None:
            self._errors.append(report.failure)
        self._record(_run(each, self._context, began_at, report, held=report.seconds), report.failure, self._context)
        return not _stops(each, report)

    def _start(self, each: Subscription) -> None:
        """Let one hook be called in the background, on a copy of the context's dictionaries as they are now."""
        own, asked_at = self._context.copy(), time.time()
        try:
            if self._background is not None:
                self._background.submit(lambda: self._call_behind(each, own))
                self._started.append(each.hook)
        except HookPoolDead as error:
            failure = _failure(each, FailureKind.POOL, error)
            self._errors.append(failure)
            report = CallReport(outcome=HookOutcome.NOT_CALLED, seconds=0.0, failure=failure)
            self._record(_run(each, own, asked_at, report, held=0.0), failure, own)

    def _call_behind(self, each: Subscription, context: HookContext) -> None:
        began_at = time.time()
        try:
            report = call_hook(each, context, self._threads)
        except BaseException as error:  # noqa: BLE001  # the end of the program is not for a background hook to decide
            failure = _failure(each, FailureKind.ERROR, RuntimeError(f"the hook raised {error!r} in the background"))
            report = CallReport(outcome=HookOutcome.FAILED, seconds=time.time() - began_at, failure=failure)
        failed = report.failure
        if report.verdict.stop and each.event.may_be_vetoed:
            late = HookVetoed("it said no in the background, where nobody waits for it. Drop async_execution.")
            failed = _failure(each, FailureKind.LATE_VETO, late)
        self._record(_run(each, context, began_at, report, held=0.0), failed, context)


def _failure(each: Subscription, kind: FailureKind, error: Exception) -> HookFailure:
    return HookFailure(hook=each.hook, event=each.event, kind=kind, error=error, seconds=0.0)


def _stops(each: Subscription, report: CallReport) -> bool:
    """A hook stops an event by saying no, or by failing where it is CRITICAL; lack of a thread is no failure of it."""
    if report.failure is None:
        return report.verdict.stop
    return each.vetoes_by_failing and report.failure.kind is not FailureKind.POOL


def _run(each: Subscription, context: HookContext, began_at: float, report: CallReport, *, held: float) -> HookRun:
    return HookRun(
        hook=each.hook,
        event=each.event,
        priority=each.priority,
        began_at=began_at,
        seconds=report.seconds,
        held=held,
        outcome=report.outcome,
        checkpoint_id=context.checkpoint_id,
        experiment_id=context.experiment_id,
    )
