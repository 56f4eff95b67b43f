"""Lost threads: run a call for a limited time in a thread that is left behind when the time is over.

No signal, so it works in any thread and below one second; nothing can stop a Python thread, so one that is left behind
runs on until its hook returns. It is counted, and its hook is not called again before, so that a hook that hangs costs
one thread and not one a save.
"""

from __future__ import annotations

import contextvars
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from model_checkpoint import forks
from model_checkpoint.hooks.errors import HookBusy, HookPoolDead, HookTimeout

_LOG = logging.getLogger(__name__)
_MOST_IDLE = 8
_NAP = 0.5  # seconds


class LostThreads:
    """Threads that run one call at a time, are used again, and may be left behind.

    Example:
        >>> import time
        >>> threads = LostThreads()
        >>> threads.run("quick", lambda: 42, timeout=5.0)
        42
        >>> threads.run("slow", lambda: time.sleep(1.0), timeout=0.05)
        Traceback (most recent call last):
        ...
        model_checkpoint.hooks.errors.HookTimeout: hook 'slow' did not return within 0.05 s; it was left behind...
        >>> threads.left_behind
        1
        >>> threads.close()
    """

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._begin_anew()
        forks.in_child(self._begin_anew)

    def _begin_anew(self) -> None:
        """No thread survives a fork, and none that was left behind runs here."""
        self._idle: list[_Thread] = []
        self._stuck: Counter[str] = Counter()
        self._closed = False

    @property
    def left_behind(self) -> int:
        """How many calls still run though nobody waits for them."""
        return sum(self._stuck.values())

    def run(self, hook: str, call: Callable[[], Any], *, timeout: float | None) -> Any:
        """What ``call`` returns or raises, if it does so in time.

        Raises:
            HookTimeout: it did not; it runs on, and what it returns is dropped.
            HookBusy: a call of the same hook was left behind and still runs; this one was not begun.
            HookPoolDead: the system has no thread for it; it was not begun.
        """
        if self._stuck[hook]:
            raise HookBusy(
                f"hook {hook!r} was not called: its last call was left behind and still runs. Find out what it waits "
                f"for, or disable it with disable_hook({hook!r})."
            )
        task = _Task(hook, call)
        thread = self._thread()
        try:
            thread.inbox.put(task)
            finished = task.wait(timeout)
        except BaseException:  # an interrupt: whoever waited leaves, and the call runs on
            self._leave(task)
            raise
        if not finished and self._leave(task):
            raise HookTimeout(
                f"hook {hook!r} did not return within {timeout:g} s; it was left behind; what it returns is dropped. "
                f"Give it a longer timeout, or async_execution=True if nothing depends on it."
            )
        return task.outcome()

    def close(self) -> None:
        """End the idle threads; those at work end with their call.

        Takes no lock, because the garbage collector may call it in the middle of anything.
        """
        self._closed = True
        while (thread := self._idle_one()) is not None:
            thread.inbox.put(None)

    def _idle_one(self) -> _Thread | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _thread(self) -> _Thread:
        if (thread := self._idle_one()) is not None:
            return thread
        thread = _Thread(self._take, self._rest)
        try:
            thread.start()
        except RuntimeError as error:  # no thread to be had
            raise HookPoolDead(f"no thread for a hook with a timeout: {error}. It was not called.") from error
        return thread

    def _leave(self, task: _Task) -> bool:
        """Whether the task is left behind; it may have finished just now."""
        with self._lock:
            if task.over:
                return False
            task.left = True
            self._stuck[task.hook] += task.taken
            return True

    def _take(self, task: _Task) -> bool:
        """Called by a thread before each task: whether anybody still wants it done."""
        with self._lock:
            task.taken = not task.left
            return task.taken

    def _rest(self, thread: _Thread, task: _Task) -> bool:
        """Called by a thread after each task: whether it is wanted for another one."""
        with self._lock:
            task.finish()
            if task.left and task.taken:
                self._stuck[task.hook] -= 1
                _LOG.info("hook %r, which had been left behind, has returned", task.hook)
            wanted = not self._closed and len(self._idle) < _MOST_IDLE
            if wanted:
                self._idle.append(thread)
            return wanted


class _Task:
    """One call and what came of it.

    A bare lock is its bell, because an interrupt in the wrong moment of waiting for an Event breaks that.
    """

    def __init__(self, hook: str, call: Callable[[], Any]) -> None:
        self.hook, self.taken, self.left, self.over = hook, False, False, False
        self._bell = threading.Lock()
        self._bell.acquire()
        self._call, self._surroundings = call, contextvars.copy_context()
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._value = self._surroundings.run(self._call)
        except BaseException as error:  # noqa: BLE001  # carried to whoever waits
            self._error = error

    def finish(self) -> None:
        """Say that it is over; the thread that ran it does, once."""
        self.over = True
        self._bell.release()

    def wait(self, timeout: float | None) -> bool:
        """Whether it was over in time; only who began it waits, once.

        In short waits: the interpreter does not notice an interrupt that comes just before it goes to sleep.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not self._bell.acquire(timeout=max(0.0, min(_NAP, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return False
        return True

    def outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class _Thread(threading.Thread):
    """One thread; it holds no manager, so that a forgotten one can go."""

    def __init__(self, take: Callable[[_Task], bool], rest: Callable[[_Thread, _Task], bool]) -> None:
        super().__init__(name="mckpt-hook", daemon=True)
        self.inbox: SimpleQueue[_Task | None] = SimpleQueue()
        self._take, self._rest = take, rest

    def run(self) -> None:
        while (task := self.inbox.get()) is not None:
            if self._take(task):
                task.run()
            wanted = self._rest(self, task)
            del task  # its context must not live until the next one comes
            if not wanted:
                return
