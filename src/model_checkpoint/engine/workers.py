"""Workers: run one function over a shared list of items in a few threads; the first failure stops all."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(worker: Callable[[Iterator[T]], None], items: Sequence[T], *, threads: int) -> None:
    """Let ``threads`` workers share ``items``; raise the first error any of them met, after all have stopped."""
    if threads <= 1:
        worker(iter(items))
        return
    queue = _Queue(items)

    def guarded(finished: threading.Event) -> None:
        try:
            worker(iter(queue))
        except BaseException as error:  # noqa: BLE001  # carried to the caller, who raises it
            queue.stop(error)
        finally:
            finished.set()

    begun: list[threading.Event] = []
    try:
        for i in range(threads):
            begun.append(threading.Event())
            _start(threading.Thread(target=guarded, args=begun[-1:], name=f"mckpt-worker-{i}", daemon=True), begun[-1])
        _wait(begun)
    except BaseException as error:  # an interrupt while waiting: the workers must not outlive the call
        queue.stop(error)
        _wait(begun)
        raise
    if queue.error is not None:
        raise queue.error


def _start(thread: threading.Thread, finished: threading.Event) -> None:
    try:
        thread.start()
    except RuntimeError:  # the system has no thread left: nobody will ever finish
        finished.set()
        raise


def _wait(begun: Sequence[threading.Event]) -> None:
    """Wait for workers by their own word: a ``join`` that was interrupted takes its thread for dead ever after."""
    for finished in begun:
        finished.wait()


class _Queue(Generic[T]):
    """Hands out items one by one, from any thread, until they are gone or somebody failed."""

    def __init__(self, items: Sequence[T]) -> None:
        self._items, self._next, self._lock = items, 0, threading.Lock()
        self.error: BaseException | None = None

    def stop(self, error: BaseException) -> None:
        with self._lock:
            self.error = self.error or error

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            if self.error is not None or self._next >= len(self._items):
                raise StopIteration
            item = self._items[self._next]
            self._next += 1
            return item
