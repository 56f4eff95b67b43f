"""Workers: run one function over a shared list of items in a few threads; the first failure stops all."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Generic, TypeVar

from model_checkpoint.performance.available_cores import cores as cores

T = TypeVar("T")


def yield_to_others(niceness: int = 10) -> None:
    """Let this thread, and those it starts, run only when nobody else wants the cores (where threads have a rank)."""
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it; the save is more important than its rank
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


def blocks_read() -> int | None:
    """Blocks that this thread has had to have brought from media so far; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    import resource  # which other systems lack

    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


class Pace:
    """Learns from the first items how long workers wait for the medium, and how many keep every core busy meanwhile.

    Example:
        >>> Pace(most=1).first
        1
    """

    def __init__(self, *, most: int, per_core: int = 1) -> None:
        self.first = min(max(2, per_core * cores()), most)  # on one core, too, one can hash while the other writes
        self._most, self._lessons = most, 2 * self.first
        self._busy = self._idle = 0.0
        self._lock = threading.Lock()

    @property
    def learning(self) -> bool:
        """Whether the number of workers is still open; afterwards no clock is asked."""
        return self._lessons > 0

    def waiting(self, *, cached: bool = False) -> AbstractContextManager[None]:
        """Mark a call to the medium; only there is time without work a reason for more workers.

        What is ``cached`` may come from memory. Time without work is then for lack of a core, as beside other ranks of
        the machine, and more workers would only lack more of them.
        """
        return self._measured(cached=cached) if self.learning else nullcontext()

    @contextmanager
    def _measured(self, *, cached: bool) -> Iterator[None]:
        wall, busy, blocks = time.perf_counter(), time.thread_time(), blocks_read()
        yield
        if cached and blocks is not None and blocks == blocks_read():
            return
        idle = time.perf_counter() - wall - (time.thread_time() - busy)
        with self._lock:
            self._idle += idle

    def learn(self, busy: float) -> int:
        """Count one finished item and its processor seconds; return how many workers to add, once."""
        with self._lock:
            self._busy += busy
            self._lessons -= 1
            if self._lessons:
                return 0
            ideal = cores() * (self._busy + self._idle) / max(self._busy, 1e-9)
            return min(self._most, round(ideal)) - self.first


def run_all(worker: Callable[[Iterator[T]], None], items: Sequence[T], *, pace: Pace) -> None:
    """Let workers share ``items``, as many as ``pace`` says; raise the first error, after all have stopped."""
    if pace.first <= 1 or len(items) <= 1:
        worker(iter(items))
        return
    team = _Team(worker, _Queue(items), pace)
    try:
        try:
            team.grow(min(pace.first, len(items)))
        except RuntimeError:  # the system has no thread left: those that run will do, and this one
            team.join()
        team.wait()
    except BaseException as error:  # an interrupt while waiting: the workers must not outlive the call
        team.queue.stop(error)
        team.wait()
        raise
    if team.queue.error is not None:
        raise team.queue.error


def run_beside(beside: Callable[[], None], work: Callable[[], None], *, stop: Callable[[], None]) -> None:
    """Do both at once, ``work`` in the thread of the caller; raise the first error, after both have stopped.

    ``stop`` is called when one of them fails, or the caller is interrupted: the other one must then end soon.
    """
    seat, errors = _Seat(), list[BaseException]()

    def run() -> None:
        if not seat.take():
            return  # the starter was interrupted, or does it itself
        try:
            beside()
        except BaseException as error:  # noqa: BLE001  # carried to the caller, who raises it
            errors.append(error)
            stop()
        finally:
            seat.leave()

    try:
        try:
            threading.Thread(target=run, name="mckpt-beside", daemon=True).start()
        except RuntimeError:  # the system has no thread left: one after the other
            work()
            run()
        else:
            work()
            seat.wait()
    except BaseException as error:  # noqa: BLE001  # raised when both have stopped
        errors.append(error)
        stop()
        if seat.take():
            seat.leave()
        seat.wait()
    if errors:
        raise errors[0]


class _Team(Generic[T]):
    """The threads of one call."""

    def __init__(self, worker: Callable[[Iterator[T]], None], queue: _Queue[T], pace: Pace) -> None:
        self.queue, self._worker, self._pace = queue, worker, pace
        self._begun: list[_Seat] = []

    def grow(self, count: int) -> None:
        """Start more threads."""
        for _ in range(count):
            seat, name = _Seat(), f"mckpt-worker-{len(self._begun) + 1}"
            thread = threading.Thread(target=self._guarded, args=(seat,), name=name, daemon=True)
            try:
                self._begun.append(seat)  # before the start, so that an interrupt in between leaves nobody behind
                thread.start()
            except BaseException:  # the system has no thread left, or an interrupt: perhaps nobody will ever finish
                if seat.take():
                    seat.leave()
                raise

    def join(self) -> None:
        """Work along in the thread of the caller."""
        self._begun.append(_Seat())
        self._guarded(self._begun[-1])

    def wait(self) -> None:
        """Return when all have stopped; those that join late are started by one that is waited for.

        By the workers' own word: a ``join`` that was interrupted takes its thread for dead ever after.
        """
        for seat in self._begun:
            seat.wait()

    def _guarded(self, seat: _Seat) -> None:
        if not seat.take():
            return  # whoever started this thread was interrupted, and waits for nobody here
        try:
            self._worker(self._timed())
        except BaseException as error:  # noqa: BLE001  # carried to the caller, who raises it
            self.queue.stop(error)
        finally:
            seat.leave()

    def _timed(self) -> Iterator[T]:
        for item in self.queue:
            if not self._pace.learning:
                yield item
                continue
            busy = time.thread_time()
            yield item
            with suppress(RuntimeError):  # no more threads to be had: those that run will do
                self.grow(self._pace.learn(time.thread_time() - busy))


class _Seat:
    """The place of one worker: taken by its thread, or by a starter who was interrupted before the thread ran.

    Bare locks, because an interrupt in the wrong moment of waiting for an Event leaves that locked for ever.
    """

    def __init__(self) -> None:
        self._lock, self._taken = threading.Lock(), False
        self._bell, self._left = threading.Lock(), False
        self._bell.acquire()

    def take(self) -> bool:
        """Whether nobody had taken it before."""
        with self._lock:
            first, self._taken = not self._taken, True
            return first

    def leave(self) -> None:
        """Say that the work is over; only who took the seat may."""
        self._left = True
        self._bell.release()

    def wait(self) -> None:
        """Return when it is over; may be interrupted at any moment and called again."""
        while not self._left:
            self._bell.acquire()


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
