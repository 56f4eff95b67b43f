"""Loader workers: they outlive signals meant for the process that will save, and end with it all the same.

Schedulers and terminals signal a whole group. A worker that died of it would raise in the midst of the body that is to
be finished. So workers ignore those signals, from their very beginning; and since they then also ignore being told to
end that way, whoever made them ends them in the way of their own queue, at the latest when the program ends.
"""

from __future__ import annotations

import atexit
import os
import signal
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_alive: weakref.WeakSet[Any] = weakref.WeakSet()


class DeafWorker:
    """A ``worker_init_fn`` after which those signals do no harm."""

    def __init__(self, then: Callable[[int], Any] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        """Begin the life of a worker, whose signals were held back until now."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if self._then is not None:
            self._then(worker)


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold signals back while workers are made: they inherit that, until they have become deaf."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_at_exit(iterator: Any) -> None:
    """End the workers of a loader's iterator when the program ends, before anyone waits for them in vain."""
    if hasattr(iterator, "_shutdown_workers"):
        _alive.add(iterator)
        iterator._mckpt_owner = os.getpid()
        atexit.unregister(_end_all)
        atexit.register(_end_all)  # the last to be registered is the first to run


def end_workers(iterator: Any) -> None:
    """End the workers of a loader's iterator now; no other process than their maker can."""
    if getattr(iterator, "_mckpt_owner", None) == os.getpid():
        iterator._shutdown_workers()
        _alive.discard(iterator)


def _end_all() -> None:
    for iterator in list(_alive):
        end_workers(iterator)
