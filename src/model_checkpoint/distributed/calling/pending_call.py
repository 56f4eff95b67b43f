"""Pending call: a call that goes on in a thread of its own, and the order in which calls are made.

All ranks make the same calls in the same order, also those that go on in the background: each gets its turn when it is
called, not when its thread comes to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from model_checkpoint import forks
from model_checkpoint.distributed.errors import CallTimeout

T = TypeVar("T")


class Turns:
    """Lets calls begin one after the other, in the order in which they asked.

    Example:
        >>> turns = Turns()
        >>> first, second = turns.ask(), turns.ask()
        >>> with turns.have(first):
        ...     pass
        >>> with turns.have(second):
        ...     pass
    """

    def __init__(self) -> None:
        self._changed = forks.condition()
        self._asked = self._served = 0
        forks.in_child(self._begin_anew)

    def _begin_anew(self) -> None:
        self._served = self._asked  # whoever was waiting did not come along

    def ask(self) -> int:
        """Be next after all who have asked before."""
        with self._changed:
            self._asked += 1
            return self._asked

    @contextmanager
    def have(self, turn: int) -> Iterator[None]:
        """Wait for one's turn, and give it up at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._served >= turn - 1)
        try:
            yield
        finally:
            with self._changed:
                self._served = max(self._served, turn)
                self._changed.notify_all()


class PendingCall(Generic[T]):
    """A call under way; the process waits for it before it ends. May be awaited.

    Example:
        >>> call = PendingCall("an example", lambda: 1 + 1, threading.Event())
        >>> call.result(), call.done()
        (2, True)
    """

    def __init__(self, what: str, work: Callable[[], T], cancel: threading.Event) -> None:
        self._what, self._cancel = what, cancel
        self._future: Future[T] = Future()
        self._thread = threading.Thread(target=self._run, args=(work,), name=f"mckpt-{what}", daemon=False)
        self._thread.start()

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # kept for whoever asks
            self._future.set_exception(error)

    def __repr__(self) -> str:
        return f"<PendingCall {self._what} {'done' if self.done() else 'under way'}>"

    def done(self) -> bool:
        """Whether it is over, well or not."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> T:
        """What the call returns, or raises; ``TimeoutError`` if it is not over by then, and goes on."""
        try:
            return self._future.result(timeout)
        except TimeoutError as error:
            if self._future.done():
                raise
            raise CallTimeout(f"{self._what}: not over after {timeout} s; it goes on.") from error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end and return what went wrong, or None."""
        try:
            self.result(timeout)
        except BaseException as error:
            if not self._future.done():
                raise
            return error
        return None

    def cancel(self) -> bool:
        """Have it end as soon as it can; False if it is over. Every rank then raises the same error.

        It is too late for a save that is being published; a load stopped midway says what it has replaced.
        """
        if self.done():
            return False
        self._cancel.set()
        return True

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio  # costs more than the rest of this module

        return asyncio.wrap_future(self._future).__await__()
