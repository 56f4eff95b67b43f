"""Exit watch: whoever still has something on its way when the program ends gets a last word."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet

from model_checkpoint import forks


class Parting(Protocol):
    """What is told that the program ends."""

    def before_exit(self) -> None:
        """Bring on what is on its way; threads still run, and may go on for a while."""
        ...

    def at_exit(self) -> None:
        """The last call; nothing comes after it."""
        ...


_watched: WeakSet[Any] = WeakSet()
_guard = forks.lock()
_watching = False


def watch(one: Parting) -> None:
    """Tell ``one`` when the program ends, as long as it lives and nobody calls :func:`forget`."""
    global _watching
    with _guard:
        _watched.add(one)
        if _watching:
            return
        _watching = True
    # children of multiprocessing end without the exit functions, but not without waiting for threads
    early: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
    early(_before_exit)
    atexit.register(_at_exit)


def forget(one: Parting) -> None:
    """Tell it nothing any more."""
    _watched.discard(one)


def _before_exit() -> None:
    for one in list(_watched):
        one.before_exit()


def _at_exit() -> None:
    for one in list(_watched):
        one.at_exit()


def uncaught() -> BaseException | None:
    """The exception that ends the program, as far as it tells; a session of a person ends with none."""
    return None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
