"""Discovery: find the handlers of an object or a marked function; a name that nothing would ever call is refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from model_checkpoint.hooks.base_hook import BaseHook
from model_checkpoint.hooks.decorators import HookMark, mark_of
from model_checkpoint.hooks.errors import HookInvalid
from model_checkpoint.hooks.registering.subscriptions import Handler, HookChoices, Subscription, subscription
from model_checkpoint.hooks.values.hook_event import HookEvent, event_named
from model_checkpoint.name_lists import did_you_mean

Events = Collection[HookEvent | str] | None

_EVENT_OF_METHOD = {event.method: event for event in HookEvent}
_LIFE = ("on_init", "on_cleanup")
_KNOWN = [*_EVENT_OF_METHOD, *_LIFE]


def name_of(source: object) -> str:
    """What a hook is called: its ``name``, the name of the function, or that of its class.

    Example:
        >>> name_of(BaseHook())
        'BaseHook'
    """
    named = getattr(source, "name", "") if not inspect.isroutine(source) else source.__name__
    return named if isinstance(named, str) and named else type(source).__name__


def events_named(hook: str, events: Events) -> tuple[HookEvent, ...]:
    """The events of a list, each once and in its order.

    Raises:
        HookInvalid: no list, an empty one, or an event that does not exist.
    """
    if events is None or isinstance(events, (str, HookEvent)) or not isinstance(events, Collection):
        raise HookInvalid(
            f"hook {hook!r}: events is a list such as [HookEvent.AFTER_CHECKPOINT_SAVE], got {events!r}. "
            f"list(HookEvent) means all."
        )
    if not events:
        raise HookInvalid(f"hook {hook!r}: events is empty, so it would never be called. list(HookEvent) means all.")
    try:
        return tuple(dict.fromkeys(event_named(event) for event in events))
    except HookInvalid as error:
        raise HookInvalid(f"hook {hook!r}: {error}") from None


def subscriptions_of_function(hook: str, handler: Handler, events: Events, choices: HookChoices) -> list[Subscription]:
    """What a plain function subscribes to: ``events``, or those it is marked with."""
    mark = mark_of(handler)
    if mark is not None:
        choices = choices.over(_choices_of_mark(mark))
        events = mark.events if events is None else events
    return [subscription(hook, event, handler, choices) for event in events_named(hook, events)]


def subscriptions_of_object(hook: str, source: object, events: Events, choices: HookChoices) -> list[Subscription]:
    """What an object subscribes to: methods ``on_<event>``, marked methods, and ``execute`` for all other events.

    Raises:
        HookInvalid: a method that nothing would ever call, or nothing to call at all.
    """
    if isinstance(source, type):
        raise HookInvalid(
            f"hook {hook!r}: got the class {source.__name__}. Register an object of it: {source.__name__}()."
        )
    choices = choices.over(_choices_of_object(source))
    found = _special_handlers(hook, source, choices)
    execute = getattr(source, "execute", None)
    if callable(execute):
        wanted = events if events is not None else getattr(source, "events", None)
        for event in HookEvent if wanted is None else events_named(hook, wanted):
            if event not in found:
                found[event] = [subscription(hook, event, execute, choices)]
    elif events is not None or getattr(source, "events", None) is not None:
        raise HookInvalid(
            f"hook {hook!r}: events are for execute(context), which {type(source).__name__} does not have."
        )
    if not found:
        raise HookInvalid(_nothing_to_call(hook, source))
    return [each for several in found.values() for each in several]


def _special_handlers(hook: str, source: object, choices: HookChoices) -> dict[HookEvent, list[Subscription]]:
    """The methods made for one event or a few, by event."""
    found: dict[HookEvent, list[tuple[str, Subscription]]] = {}
    for name, method in _methods(source):
        mark = mark_of(method)
        named = _EVENT_OF_METHOD.get(name)
        if mark is None and named is None:
            _refuse_if_misspelt(hook, source, name)
            continue
        own = choices if mark is None else _choices_of_mark(mark).over(choices)
        for event in (mark.events if mark else ()) or ((named,) if named else ()):
            found.setdefault(event, []).append((name, subscription(hook, event, method, own)))
    return {event: _labelled(several) for event, several in found.items()}


def _labelled(several: list[tuple[str, Subscription]]) -> list[Subscription]:
    """Methods that share an event answer each under its own name."""
    if len(several) == 1:
        return [several[0][1]]
    return [replace(each, label=f"{each.hook}.{name}") for name, each in several]


def _methods(source: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods of an object; its properties are not touched."""
    for name in dir(source):
        if name.startswith("_") or name in (*_LIFE, "execute"):
            continue
        if isinstance(inspect.getattr_static(source, name, None), property):
            continue
        method = getattr(source, name, None)
        if callable(method) and not isinstance(method, type):
            yield name, method


def _choices_of_object(source: object) -> HookChoices:
    should_execute = getattr(source, "should_execute", None)
    return HookChoices(
        priority=getattr(source, "priority", None),
        timeout=getattr(source, "timeout", None),
        async_execution=getattr(source, "async_execution", None),
        condition=should_execute if callable(should_execute) else None,
    )


def _choices_of_mark(mark: HookMark) -> HookChoices:
    return HookChoices(priority=mark.priority, timeout=mark.timeout, async_execution=mark.async_execution)


def _refuse_if_misspelt(hook: str, source: object, name: str) -> None:
    """Refuse ``on_before_checkpoint_sav`` and ``before_checkpoint_save``; other methods are the hook's own business."""
    where = f"hook {hook!r}: {type(source).__name__}.{name} would never be called."
    if f"on_{name}" in _EVENT_OF_METHOD:
        raise HookInvalid(f"{where} Did you mean 'on_{name}'?")
    if name.startswith("on_"):
        raise HookInvalid(f"{where} {did_you_mean(name, _KNOWN)}")


def _nothing_to_call(hook: str, source: object) -> str:
    own = [name for name, _ in _methods(source) if not hasattr(BaseHook, name)]
    close = [name for name in own if get_close_matches(name, ["execute", *_KNOWN], n=1, cutoff=0.8)]
    seen = f" Its {', '.join(close or own)} is called by nothing." if own else ""
    return (
        f"hook {hook!r}: {type(source).__name__} has nothing to call.{seen} Define execute(context), or a method per "
        f"event such as on_before_checkpoint_save(context)."
    )
