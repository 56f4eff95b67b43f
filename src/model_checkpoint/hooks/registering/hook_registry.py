"""Hook registry: who is registered, in the order in which they are called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from model_checkpoint import forks
from model_checkpoint.hooks.errors import HookInvalid, HookUnknown
from model_checkpoint.hooks.registering.subscriptions import HookRegistration, Subscription
from model_checkpoint.hooks.values.hook_event import HookEvent
from model_checkpoint.name_lists import did_you_mean


class HookRegistry:
    """All hooks by name and, ready to be called, by event.

    Each change makes new tuples, so that a firing reads without a lock and sees one state of things to its end.
    """

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._hooks: dict[str, HookRegistration] = {}
        self._calls: dict[HookEvent, tuple[Subscription, ...]] = {}

    def on(self, event: HookEvent) -> tuple[Subscription, ...]:
        """Who is called on this event, in that order."""
        return self._calls.get(event, ())

    def all(self) -> tuple[HookRegistration, ...]:
        """Every hook, in the order of registration."""
        return tuple(self._hooks.values())

    def get(self, name: str) -> HookRegistration:
        """One hook.

        Raises:
            HookUnknown: nobody has that name; the message says who may be meant.
        """
        try:
            return self._hooks[name]
        except KeyError:
            hint = did_you_mean(name, self._hooks) if self._hooks else "No hook is registered."
            raise HookUnknown(f"no hook is called {name!r}. {hint}") from None

    def add(self, registration: HookRegistration) -> None:
        """Take in one hook.

        Raises:
            HookInvalid: the name is taken.
        """
        with self._lock:
            self.check_free(registration.name)
            self._replace({**self._hooks, registration.name: registration})

    def check_free(self, name: str) -> None:
        """Raise :class:`HookInvalid` when a hook has that name."""
        if name in self._hooks:
            raise HookInvalid(
                f"a hook called {name!r} is already registered. Unregister it first, or give this one another name "
                f"(the attribute `name` of a hook object)."
            )

    def remove(self, name: str) -> HookRegistration:
        """Take one hook out."""
        with self._lock:
            gone = self.get(name)
            self._replace({other: each for other, each in self._hooks.items() if other != name})
            return gone

    def enable(self, name: str, enabled: bool) -> None:
        """Let a hook be called, or not."""
        with self._lock:
            self._replace({**self._hooks, name: replace(self.get(name), enabled=enabled)})

    def remove_event(self, event: HookEvent | None) -> tuple[HookRegistration, ...]:
        """Forget one event, or all; return the hooks that have nothing left to hear."""
        with self._lock:
            kept, gone = {}, []
            for name, each in self._hooks.items():
                left = tuple(one for one in each.subscriptions if event is not None and one.event is not event)
                if left:
                    kept[name] = replace(each, subscriptions=left)
                else:
                    gone.append(each)
            self._replace(kept)
            return tuple(gone)

    def _replace(self, hooks: dict[str, HookRegistration]) -> None:
        self._hooks = hooks
        self._calls = _by_event(hooks.values())


def _by_event(hooks: Iterable[HookRegistration]) -> dict[HookEvent, tuple[Subscription, ...]]:
    """Who is called on each event: by priority, then by time of registration."""
    calls: dict[HookEvent, list[Subscription]] = {}
    for hook in hooks:
        for each in hook.subscriptions if hook.enabled else ():
            calls.setdefault(each.event, []).append(each)
    return {event: tuple(sorted(several, key=lambda one: one.priority)) for event, several in calls.items()}
