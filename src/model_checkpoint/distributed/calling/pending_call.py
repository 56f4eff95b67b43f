"""Pending call: a call that goes on in a thread of its own, and the order in which calls are made.

All ranks make the same calls in the same order, also those that go on in the background: each gets its turn when it is
called, not when its thread comes to it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from model_checkpoint import forks
from model_checkpoint.distributed.errors import CallTimeout

T = TypeVar("T")
Attend = Callable[[], None] | None  # carries the words of other threads, where only one may talk

_COME_BY = 0.005


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

    def __init__(self, attend: Attend = None) -> None:
        self._changed, self._attend = forks.condition(), attend
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
        while not self._is_served(turn - 1):
            if self._attend is not None:
                self._attend()
        try:
            yield
        finally:
            with self._changed:
                self._served = max(self._served, turn)
                self._changed.notify_all()

    def _is_served(self, turn: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._served >= turn, None if self._attend is None else _COME_BY)


class PendingCall(Generic[T]):
    """A call under way; the process waits for it before it ends, unless it is a ``daemon``. May be awaited.

    With ``begin=False`` it waits for :meth:`begin`: whoever is interrupted there has the call to end it by.

    Example:
        >>> call = PendingCall("an example", lambda: 1 + 1, threading.Event())
        >>> call.result(), call.done()
        (2, True)
    """

    def __init__(
        self,
        what: str,
        work: Callable[[], T],
        cancel: threading.Event,
        attend: Attend = None,
        *,
        daemon: bool = False,
        begin: bool = True,
    ) -> None:
        self._what, self._cancel, self._attend = what, cancel, attend
        self._future: Future[T] = Future()
        self._thread = threading.Thread(target=self._run, args=(work,), name=f"mckpt-{what}", daemon=daemon)
        if begin:
            self.begin()

    def begin(self) -> None:
        """Let it go."""
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
            if self._attend is not None:
                timeout = self._attended(self._attend, timeout)
            return self._future.result(timeout)
        except TimeoutError as error:
            if self._future.done():
                raise
            raise CallTimeout(f"{self._what}: not over after {timeout} s; it goes on.") from error

    def _attended(self, attend: Callable[[], None], timeout: float | None) -> float | None:
        """Carry the words of the call until it is over or the time is; return the time left."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._future.done() and (end is None or time.monotonic() < end):
            attend()
            wait([self._future], _COME_BY)
        attend()
        return None if end is None else max(0.0, end - time.monotonic())

    def wait(self, timeout: float) -> None:
        """Wait for the end, or for ``timeout`` seconds."""
        with suppress(BaseException):
            self.result(timeout)

    def at_end(self, call: Callable[[T], object] | None) -> None:
        """Have ``call`` called with what it returned, in its thread, or now if it is over; never if it failed."""
        if call is not None:
            self._future.add_done_callback(lambda done: None if done.exception() else call(done.result()))

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
        return self._awaited().__await__()

    async def _awaited(self) -> T:
        import asyncio  # costs more than the rest of this module

        future = asyncio.wrap_future(self._future)
        while self._attend is not None and not future.done():
            self._attend()  # only this thread may talk, and the loop runs in it
            await asyncio.wait([future], timeout=_COME_BY)
        if self._attend is not None:
            self._attend()  # the last word may be one that others wait for
        return await future
