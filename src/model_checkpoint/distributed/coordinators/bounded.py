"""Bounded: calls that come back in time. A store whose host is stopped ignores every timeout it was given.

A program that ends waits a moment for a call under way: one that returns from foreign code into an interpreter that is
being taken down aborts the whole process.
"""

from __future__ import annotations

import atexit
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from model_checkpoint import forks

T = TypeVar("T")
_Call = tuple[Callable[[], Any], queue.SimpleQueue[Any]]

_LAST_WAIT = 2.0  # seconds that the end of a program waits for its calls: a store that answers does so in less
_in_use: weakref.WeakSet[BoundedCalls] = weakref.WeakSet()


class NoAnswer(Exception):
    """A call did not come back in time; what became of it nobody knows."""


class BoundedCalls:
    """Runs calls one after the other in a thread that is left behind when one of them hangs.

    Example:
        >>> calls = BoundedCalls("example")
        >>> calls.run(lambda: 1 + 1, seconds=5)
        2
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin()
        forks.in_child(self._begin)
        _in_use.add(self)

    def _begin(self) -> None:
        self._work: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._guard, self._busy = forks.lock(), forks.lock()
        self._ended = False

    def run(self, call: Callable[[], T], *, seconds: float) -> T:
        """Return what ``call`` returns, or raise what it raises, or :class:`NoAnswer` after ``seconds``."""
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with self._guard:
            if self._thread is None:
                work, busy = self._work, self._busy
                self._thread = threading.Thread(
                    target=lambda: _serve(work, busy), name=f"mckpt-{self._name}", daemon=True
                )
                self._thread.start()
            self._work.put((call, answer))
        try:
            good, value = answer.get(timeout=max(0.0, seconds))
        except queue.Empty:
            self._leave_behind()
            raise NoAnswer(f"{self._name}: no answer within {seconds:.1f} s") from None
        if not good:
            raise value
        made: T = value
        return made

    @property
    def wanted(self) -> bool:
        """Whether the call under way keeps another one waiting, or the end of the program."""
        return self._ended or not self._work.empty()

    def _leave_behind(self) -> None:
        """The next call gets a thread of its own; the old one ends when, and if, its call does."""
        with self._guard:
            self._work.put(None)
            self._work, self._thread, self._busy = queue.SimpleQueue(), None, forks.lock()

    def __del__(self) -> None:
        self._work.put(None)

    def end(self, until: float) -> None:
        """Wait for the call under way, if there is one, and let no other begin."""
        self._ended = True
        self._busy.acquire(timeout=max(0.0, until - time.monotonic()))


@atexit.register
def _end_all() -> None:
    until = time.monotonic() + _LAST_WAIT
    for calls in list(_in_use):
        calls.end(until)


def _serve(work: queue.SimpleQueue[_Call | None], busy: threading.Lock) -> None:
    while (one := work.get()) is not None:
        with busy:
            _make(*one)
        del one  # while it waits the thread holds nothing, so that whoever uses it can go, and it ends


def _make(call: Callable[[], Any], answer: queue.SimpleQueue[Any]) -> None:
    try:
        answer.put((True, call()))
    except BaseException as error:  # noqa: BLE001  # carried to the caller
        answer.put((False, error))


def pause(nap: float, until: float, world_size: int = 64) -> float:
    """Sleep for ``nap`` seconds, but not beyond ``until``; return a somewhat longer nap for the next time.

    Few ranks look often, so that they come hardly too late; many would wear out whoever answers them all.
    """
    time.sleep(max(0.0, min(nap, until - time.monotonic())))
    return min(0.05, nap * (1 + min(0.5, max(0.02, world_size / 200))))
