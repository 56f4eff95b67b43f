"""Signals: monitoring hooks of the activation classes.

A listener runs in the thread that caused the event, after every lock has been let go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from model_checkpoint import forks

log = logging.getLogger("model_checkpoint.recompute")

Event = TypeVar("Event")


class Signal(Generic[Event]):
    """A list of listeners for one kind of event; safe from any thread, false while nobody listens.

    Example:
        >>> heard = []
        >>> registered = Signal[str]("registered")
        >>> stop = registered.subscribe(heard.append)
        >>> registered.emit("block1")
        >>> stop()
        >>> registered.emit("block2")
        >>> heard
        ['block1']
    """

    __slots__ = ("_listeners", "_lock", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._listeners: tuple[Callable[[Event], None], ...] = ()
        self._lock = forks.lock()

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``listener`` with every event from now on; the returned function ends that."""
        with self._lock:
            self._listeners = (*self._listeners, listener)
        return lambda: self._forget(listener)

    def _forget(self, listener: Callable[[Event], None]) -> None:
        with self._lock:
            kept = list(self._listeners)
            if listener in kept:
                kept.remove(listener)
            self._listeners = tuple(kept)

    def emit(self, event: Event) -> None:
        """Tell every listener; one that fails is logged and does not stop the others."""
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                log.exception("%s: a listener failed", self.name)
