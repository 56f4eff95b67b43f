"""Base hook: what authors of hooks derive from.

A hook is an object with ``execute(context)``, or with a method per event (``on_before_checkpoint_save``, ``on_error``),
or both: an event with a method of its own goes there, every other one of ``events`` to ``execute``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookEvent, HookPriority


class BaseHook:
    """Something that is called when an event is fired. All of this may be left as it is.

    ``name`` is the class's name unless set; ``events`` are those that ``execute`` hears of, all of them when ``None``.
    A method returns ``False`` or ``{"continue": False}`` to say no, ``{"context_updates": {...}}`` to change the data,
    anything else to go on. Methods may be ``async def``.

    Example:
        >>> from model_checkpoint.hooks import BaseHook, HookManager
        >>> class Guard(BaseHook):
        ...     def on_before_checkpoint_save(self, context):
        ...         return context.get("loss") < 10
        >>> manager = HookManager()
        >>> manager.register_hook(Guard())
        'Guard'
        >>> manager.fire_hook("before_checkpoint_save", loss=99).stopped_by
        'Guard'
    """

    name: str = ""
    events: Collection[HookEvent | str] | None = None
    priority: HookPriority = HookPriority.NORMAL
    timeout: float | None = None
    async_execution: bool = False

    def on_init(self) -> None:
        """Called once, before the hook hears of its first event; what it raises prevents the registration."""

    def on_cleanup(self) -> None:
        """Called once, when the hook is unregistered or its manager closes."""


class ChainableHook(BaseHook):
    """A hook that hands the data on, changed: what it returns is what the next hook and the caller see.

    Example:
        >>> from model_checkpoint.hooks import ChainableHook, HookManager
        >>> class Rounded(ChainableHook):
        ...     def process_data(self, data, context):
        ...         return {"loss": round(data["loss"], 1)}
        >>> manager = HookManager()
        >>> _ = manager.register_hook(Rounded())
        >>> manager.fire_hook("after_checkpoint_save", loss=0.123).context.get("loss")
        0.1
    """

    def process_data(self, data: dict[str, Any], context: HookContext) -> Mapping[str, Any] | None:
        """What to change in the data; ``None`` changes nothing. ``data`` is a copy of the dictionary."""
        return None

    def should_continue(self, context: HookContext) -> bool:
        """Whether the hooks after this one are called."""
        return True

    def execute(self, context: HookContext) -> dict[str, Any]:
        """Change the data, then decide whether to go on."""
        updates = self.process_data(dict(context.data), context) or {}
        context.update(updates)
        return {"continue": self.should_continue(context), "context_updates": updates}


class ConditionalHook(BaseHook):
    """A hook that is called only when :meth:`should_execute` says so; otherwise its run is recorded as skipped.

    Example:
        >>> from model_checkpoint.hooks import ConditionalHook, HookManager
        >>> class EveryTenth(ConditionalHook):
        ...     def should_execute(self, context):
        ...         return context.get("step") % 10 == 0
        ...     def execute(self, context):
        ...         return "seen"
        >>> manager = HookManager()
        >>> _ = manager.register_hook(EveryTenth())
        >>> manager.fire_hook("after_checkpoint_save", step=10).results
        {'EveryTenth': 'seen'}
        >>> manager.fire_hook("after_checkpoint_save", step=11).results
        {}
    """

    def should_execute(self, context: HookContext) -> bool:
        """Whether to call the hook this time."""
        return True
