"""Registrations: a hook as it was handed in, checked and ready to be called."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model_checkpoint.hooks.decorators import mark_of
from model_checkpoint.hooks.errors import HookInvalid
from model_checkpoint.hooks.registering.discovery import (
    Events,
    name_of,
    subscriptions_of_function,
    subscriptions_of_object,
)
from model_checkpoint.hooks.registering.subscriptions import Handler, HookChoices, HookRegistration
from model_checkpoint.hooks.values.hook_event import HookEvent, HookPriority


@dataclass(frozen=True, slots=True, kw_only=True)
class HookInfo:
    """A registered hook, as :meth:`HookManager.list_hooks` tells it."""

    name: str
    events: tuple[HookEvent, ...]
    priority: HookPriority
    timeout: float | None
    async_execution: bool
    conditional: bool
    enabled: bool
    metadata: Mapping[str, Any] = field(default_factory=dict)


def registration_of(
    name: object, handler: Handler | None, events: Events, choices: HookChoices, metadata: dict[str, Any]
) -> HookRegistration:
    """A checked registration, from either style: a hook object or marked function, or a name with its handler.

    Raises:
        HookInvalid: something is missing, misspelt or impossible.
    """
    if isinstance(name, str):
        if not name:
            raise HookInvalid("a hook needs a name, got an empty one.")
        if handler is None:
            raise HookInvalid(
                f"hook {name!r}: with a name comes a handler: register_hook({name!r}, handler, events=[...])."
            )
        found = subscriptions_of_function(name, handler, events, choices)
        return HookRegistration(name=name, subscriptions=tuple(found), metadata=metadata)
    own_name = name_of(name)
    if handler is not None:
        raise HookInvalid(
            f"hook {own_name!r}: a handler comes with a name, a hook object is its own handler. Give one."
        )
    if callable(name) and (inspect.isroutine(name) or mark_of(name) is not None):
        found = subscriptions_of_function(own_name, name, events, choices)
        return HookRegistration(name=own_name, subscriptions=tuple(found), metadata=metadata)
    found = subscriptions_of_object(own_name, name, events, choices)
    return HookRegistration(name=own_name, subscriptions=tuple(found), source=name, metadata=metadata)


def info_of(hook: HookRegistration) -> HookInfo:
    """What can be told of a hook; of several methods, that of the one called first."""
    first = min(hook.subscriptions, key=lambda one: one.priority)
    return HookInfo(
        name=hook.name,
        events=tuple(dict.fromkeys(one.event for one in hook.subscriptions)),
        priority=first.priority,
        timeout=first.timeout,
        async_execution=first.async_execution,
        conditional=first.condition is not None,
        enabled=hook.enabled,
        metadata=hook.metadata,
    )


def priority_on(hook: HookRegistration, event: HookEvent) -> HookPriority:
    """When the hook is called on one of its events."""
    return min(one.priority for one in hook.subscriptions if one.event is event)
