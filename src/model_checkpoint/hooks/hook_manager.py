"""Hook manager: registers hooks, fires events, and remembers what each hook cost."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from model_checkpoint.hooks.calling.background_calls import BackgroundCalls
from model_checkpoint.hooks.calling.firing import Firing
from model_checkpoint.hooks.calling.hook_call import call_hook
from model_checkpoint.hooks.calling.timeout_threads import LostThreads
from model_checkpoint.hooks.errors import HookInvalid, HookManagerClosed
from model_checkpoint.hooks.recording.dead_letters import DeadLetter
from model_checkpoint.hooks.recording.hook_records import HookRecords
from model_checkpoint.hooks.registering.discovery import Events
from model_checkpoint.hooks.registering.hook_registry import HookRegistry
from model_checkpoint.hooks.registering.registrations import HookInfo, info_of, priority_on, registration_of
from model_checkpoint.hooks.registering.subscriptions import (
    Condition,
    ErrorHandler,
    Handler,
    HookChoices,
    HookRegistration,
    Subscription,
)
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookEvent, HookPriority, event_named
from model_checkpoint.hooks.values.hook_result import HookResult
from model_checkpoint.hooks.values.hook_run import HookRun

_LOG = logging.getLogger(__name__)
_MOST_QUEUED = 1000
_GOODBYE = 5.0  # seconds that the end of a program waits for background hooks


@dataclass(frozen=True, slots=True, kw_only=True)
class HookReplay:
    """What came of calling failed hooks again: ids of letters that are done, failed again, and have no hook now."""

    done: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    unclaimed: tuple[int, ...] = ()


class HookManager:
    """Calls hooks in the order of their priority; what one does wrong harms neither the others nor the save.

    ``max_workers`` threads call hooks registered with ``async_execution=True``; with ``enable_async=False`` those are
    waited for like all others. Usable from any thread, and after a fork.

    Example:
        >>> from model_checkpoint.hooks import HookEvent, HookManager, HookPriority
        >>> manager = HookManager()
        >>> manager.register_hook("size", lambda context: context.get("bytes") < 10**9,
        ...                       events=[HookEvent.BEFORE_CHECKPOINT_SAVE], priority=HookPriority.CRITICAL)
        'size'
        >>> bool(manager.fire_hook(HookEvent.BEFORE_CHECKPOINT_SAVE, bytes=100))
        True
        >>> manager.fire_hook(HookEvent.BEFORE_CHECKPOINT_SAVE, bytes=10**10).stopped_by
        'size'
        >>> manager.close()
        True
    """

    def __init__(self, max_workers: int = 4, enable_async: bool = True) -> None:
        if max_workers < 1:
            raise HookInvalid(f"HookManager: max_workers is at least 1, got {max_workers}.")
        self._registry = HookRegistry()
        self._threads = LostThreads()
        self._background = BackgroundCalls(max_workers=max_workers, max_queued=_MOST_QUEUED) if enable_async else None
        self._records = HookRecords()
        self._closed = False
        self._owner = os.getpid()
        self._goodbye = weakref.finalize(self, _end_threads, self._threads, self._background)
        self._goodbye.atexit = False  # by then it is closed, see below
        _open.add(self)

    # --- who is called -----------------------------------------------------------------------------------------------

    def register_hook(  # noqa: PLR0917  # the order that code written for this class knows
        self,
        name: object,
        handler: Handler | None = None,
        events: Events = None,
        priority: HookPriority | None = None,
        timeout: float | None = None,
        async_execution: bool | None = None,
        error_handler: ErrorHandler | None = None,
        condition: Condition | None = None,
        **metadata: Any,
    ) -> str:
        """Register a hook object, a marked function, or a name with its handler and events; return its name.

        Args:
            name: a hook object (see :class:`BaseHook`), a function marked by ``hook_handler``, or a name for a handler.
            handler: called with the context; only together with a name.
            events: what to hear of. A hook object without any hears of all.
            priority: who comes first; a CRITICAL hook that fails before something prevents it.
            timeout: seconds, also below one, after which the hook is left behind.
            async_execution: call it in the background; nobody waits for it and it cannot say no.
            error_handler: called with the error and the context; what it returns, if anything, is the hook's answer.
            condition: called with the context; the hook is called only when it holds.
            **metadata: kept beside the hook, and told by :meth:`list_hooks`.

        Raises:
            HookInvalid: the name is taken, or something is misspelt or impossible; nothing was registered.
            HookManagerClosed: the manager is closed.

        Example:
            >>> manager = HookManager()
            >>> manager.register_hook("tell", print, events=["after_checkpoint_sav"])
            Traceback (most recent call last):
            ...
            model_checkpoint.hooks.errors.HookInvalid: hook 'tell': 'after_checkpoint_sav' is no event. Did you mean
            'AFTER_CHECKPOINT_SAVE'?
        """
        if self._closed:
            raise HookManagerClosed(f"hook {name!r} was not registered: this manager is closed. Make another one.")
        choices = HookChoices(
            priority=priority,
            timeout=timeout,
            async_execution=async_execution,
            error_handler=error_handler,
            condition=condition,
        )
        registration = registration_of(name, handler, events, choices, metadata)
        self._registry.check_free(registration.name)
        if (on_init := getattr(registration.source, "on_init", None)) is not None:
            on_init()
        try:
            self._registry.add(registration)
        except HookInvalid:  # another thread was quicker with the same name
            self._forget(registration)
            raise
        _LOG.debug("hook %s is registered", registration.name)
        return registration.name

    def register_object_hooks(self, hook_object: object) -> str:
        """Register an object by its methods; the name older code has for :meth:`register_hook`.

        Example:
            >>> from model_checkpoint.hooks import BaseHook
            >>> class Tell(BaseHook):
            ...     def on_error(self, context): ...
            >>> HookManager().register_object_hooks(Tell())
            'Tell'
        """
        return self.register_hook(hook_object)

    def unregister_hook(self, name: str) -> None:
        """Forget a hook, after its ``on_cleanup``.

        Raises:
            HookUnknown: no hook has that name.
        """
        self._forget(self._registry.remove(name))

    def enable_hook(self, name: str) -> None:
        """Call a disabled hook again."""
        self._registry.enable(name, True)

    def disable_hook(self, name: str) -> None:
        """Do not call a hook until it is enabled; it stays registered."""
        self._registry.enable(name, False)

    def list_hooks(self, event: HookEvent | str | None = None) -> list[HookInfo]:
        """Every hook, or those of one event in the order in which they are called.

        Example:
            >>> manager = HookManager()
            >>> _ = manager.register_hook("tell", print, events=["on_error"], timeout=0.5, owner="ops")
            >>> [(hook.name, hook.timeout, hook.metadata) for hook in manager.list_hooks("on_error")]
            [('tell', 0.5, {'owner': 'ops'})]
        """
        if event is None:
            return [info_of(hook) for hook in self._registry.all()]
        wanted = event_named(event)
        found = [hook for hook in self._registry.all() if any(one.event is wanted for one in hook.subscriptions)]
        return [info_of(hook) for hook in sorted(found, key=lambda hook: priority_on(hook, wanted))]

    def clear_hooks(self, event: HookEvent | str | None = None) -> None:
        """Forget every hook, or one event of all hooks; those that have nothing left to hear are cleaned up."""
        for gone in self._registry.remove_event(None if event is None else event_named(event)):
            self._forget(gone)

    # --- what is called ----------------------------------------------------------------------------------------------

    def fire_hook(
        self,
        event: HookEvent | str,
        context: HookContext | None = None,
        *,
        checkpoint_id: str | None = None,
        experiment_id: str | None = None,
        **data: Any,
    ) -> HookResult:
        """Call the hooks of one event with ``context`` and ``data``; the result is false when one of them said no.

        What hooks change is in the result's context, and in the dictionaries of the one that was given.

        Example:
            >>> manager = HookManager()
            >>> def add(context):
            ...     return {"context_updates": {"total": context.get("step") + 1}}
            >>> _ = manager.register_hook("add", add, events=["after_checkpoint_save"])
            >>> manager.fire_hook("after_checkpoint_save", step=1).context.data
            {'step': 1, 'total': 2}
        """
        event = event_named(event)
        own = _context_for(event, context, checkpoint_id, experiment_id, data)
        subscriptions = self._registry.on(event)
        if not subscriptions:
            return HookResult(event=event, context=own)
        firing = Firing(own, threads=self._threads, background=self._background, record=self._records.add)
        result = firing.run(event, subscriptions)
        if result.stopped_by is not None:
            _LOG.info("%s was stopped by hook %s", event.name, result.stopped_by)
        return result

    def hears(self, event: HookEvent | str) -> bool:
        """Whether any hook would be called on this event; who fires many spares itself the rest.

        Example:
            >>> manager = HookManager()
            >>> _ = manager.register_hook("tell", lambda context: None, events=["on_error"])
            >>> manager.hears("on_error"), manager.hears("after_checkpoint_save")
            (True, False)
        """
        return bool(self._registry.on(event_named(event)))

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until every background call is over; whether that came in time.

        Example:
            >>> HookManager().flush()
            True
        """
        return self._background is None or self._background.flush(timeout)

    def close(self, timeout: float | None = _GOODBYE) -> bool:
        """Wait for background calls, clean up every hook, end the threads; whether all calls were over in time."""
        self._closed = True
        finished = self._background is None or self._background.close(timeout)
        self.clear_hooks()
        self._threads.close()
        _open.discard(self)
        return finished

    def __enter__(self) -> HookManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what is remembered ------------------------------------------------------------------------------------------

    def timeline(self, checkpoint_id: str | None = None) -> tuple[HookRun, ...]:
        """What each hook cost on each event, oldest first: the last ten thousand runs, or those of one checkpoint.

        Example:
            >>> manager = HookManager()
            >>> _ = manager.register_hook("tell", lambda context: None, events=["after_checkpoint_save"])
            >>> _ = manager.fire_hook("after_checkpoint_save", checkpoint_id="c-1")
            >>> [(run.hook, run.event.name, run.outcome.value) for run in manager.timeline("c-1")]
            [('tell', 'AFTER_CHECKPOINT_SAVE', 'done')]
        """
        return self._records.timeline.runs(checkpoint_id)

    def get_performance_stats(self, hook_name: str | None = None) -> dict[str, Any]:
        """Counts and seconds of one hook, or of all by name."""
        hooks = self._records.statistics.of_all()
        return hooks if hook_name is None else hooks.get(hook_name, {})

    def get_pool_stats(self) -> dict[str, int]:
        """How the threads of the hooks do: calls left behind, calls waiting, calls there was no thread for.

        Example:
            >>> HookManager().get_pool_stats()["left_behind"]
            0
        """
        return {
            "left_behind": self._threads.left_behind,
            "waiting": 0 if self._background is None else self._background.waiting,
            "pool_failures": self._records.pool_failures,
            "dead_letters": len(self._records.letters.all()),
            "dead_letters_dropped": self._records.letters.dropped,
        }

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """The last thousand calls that failed, oldest first.

        Example:
            >>> manager = HookManager()
            >>> _ = manager.register_hook("tell", lambda context: 1 / 0, events=["on_error"])
            >>> _ = manager.fire_hook("on_error", step=3)
            >>> [(letter.hook, letter.error, letter.data) for letter in manager.dead_letters()]
            [('tell', 'ZeroDivisionError: division by zero', {'step': 3})]
        """
        return self._records.letters.all()

    def replay_dead_letters(self, ids: Collection[int] | None = None) -> HookReplay:
        """Make failed calls again, all or those with these ids; a letter whose call succeeds is forgotten.

        Each goes to its own hook alone, which sees ``metadata["replay_of"]``; nothing is vetoed by it.
        """
        done, failed, unclaimed = [], [], []
        for letter in self._records.letters.chosen(ids):
            takers = [one for one in self._registry.on(letter.event) if one.hook == letter.hook]
            if not takers:
                unclaimed.append(letter.id)
            elif self._replay(letter, takers):
                done.append(letter.id)
            else:
                failed.append(letter.id)
        return HookReplay(done=tuple(done), failed=tuple(failed), unclaimed=tuple(unclaimed))

    def _replay(self, letter: DeadLetter, takers: list[Subscription]) -> bool:
        for taker in takers:
            report = call_hook(taker, letter.context(), self._threads)
            if report.failure is not None:
                self._records.letters.failed_again(letter, report.failure)
                return False
        self._records.letters.remove(letter)
        return True

    def _forget(self, gone: HookRegistration) -> None:
        if (on_cleanup := getattr(gone.source, "on_cleanup", None)) is None:
            return
        try:
            on_cleanup()
        except Exception:  # noqa: BLE001  # a hook may raise anything; it is gone either way
            _LOG.exception("hook %s failed to clean up", gone.name)


def _context_for(
    event: HookEvent,
    given: HookContext | None,
    checkpoint_id: str | None,
    experiment_id: str | None,
    data: dict[str, Any],
) -> HookContext:
    """A context of this event over the dictionaries that were given."""
    if given is None:
        return HookContext(event, data, checkpoint_id, experiment_id)
    given.data.update(data)
    return HookContext(
        event,
        given.data,
        checkpoint_id or given.checkpoint_id,
        experiment_id or given.experiment_id,
        given.user_data,
        given.metadata,
    )


def _end_threads(threads: LostThreads, background: BackgroundCalls | None) -> None:
    """End the threads of a manager that nobody closed and nobody has; no call of it is left, or it would be kept."""
    if background is not None:
        background.close(0.0)
    threads.close()


def _close_all() -> None:
    """At the end of a program, close what nobody closed; what a fork brought along is its parent's to clean up."""
    for manager in list(_open):
        if manager._owner == os.getpid():
            manager.close()


_open: weakref.WeakSet[HookManager] = weakref.WeakSet()
atexit.register(_close_all)
