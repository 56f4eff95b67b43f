"""Single flight: of many callers that need one key, one computes and the others wait for it.

A computation may need other keys. Who waits for whom is kept in one graph for the whole process, and it follows the
context, not the thread, so that it also sees work handed to worker threads; the wait that would close a circle is
an error that names it.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from model_checkpoint import forks
from model_checkpoint.errors import CheckpointException
from model_checkpoint.recompute.functions.graph import cycle_error
from model_checkpoint.recompute.functions.replay_state import REPLAY_STATE

_waits = forks.lock()  # guards every Flight.needs


class Flight:
    """One computation under way; ``abandoned`` means its result must not be stored any more.

    A flight without a key stands for several at once.
    """

    __slots__ = ("abandoned", "done", "error", "key", "needs", "value")

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None
        self.needs: list[Flight] = []
        self.abandoned = False


_current: ContextVar[Flight | None] = ContextVar("current_flight", default=None)


def in_flight() -> bool:
    """Whether the caller is part of some computation under way.

    Example:
        >>> in_flight()
        False
    """
    return _current.get() is not None


class SingleFlight:
    """The flights of one owner, by key.

    Example:
        >>> SingleFlight().run("a", lambda flight: 5)
        (5, True)
    """

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}
        self._lock = forks.lock()
        forks.in_child(self._begin_anew)

    def _begin_anew(self) -> None:
        """In a forked child nobody computes what its parent has under way: whoever asks computes it."""
        self._flights = {}

    def run(self, key: str, compute: Callable[[Flight], Any] | None) -> tuple[Any, bool]:
        """Give what ``compute`` gives, and True; or what a caller ahead of us computed, and False; or (None, False).

        The leader's failure is everybody's; only when it was interrupted from outside does the next one take over.
        """
        while True:
            flight, leads = self._board(key, may_lead=compute is not None)
            if flight is None:
                return None, False
            if leads and compute is not None:
                return self._lead(key, flight, compute), True
            with waiting_for(flight):
                flight.done.wait()
            if flight.error is None:
                return flight.value, False
            if isinstance(flight.error, CheckpointException):
                # a copy each: an exception raised in many threads would mix up their tracebacks
                raise copy.copy(flight.error) from flight.error.__cause__

    def _board(self, key: str, *, may_lead: bool) -> tuple[Flight | None, bool]:
        with self._lock:
            flight = self._flights.get(key)
            if flight is not None or not may_lead:
                return flight, False
            flight = self._flights[key] = Flight(key)
            return flight, True

    def _lead(self, key: str, flight: Flight, compute: Callable[[Flight], Any]) -> Any:
        try:
            with computing(flight, part_of=_current.get()):
                flight.value = compute(flight)
        except BaseException as error:
            flight.error = error
            raise
        finally:
            self._land(key, flight)
        return flight.value

    def _land(self, key: str, flight: Flight) -> None:
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]
        flight.done.set()

    def abandon(self, key: str) -> None:
        """Whoever asks for ``key`` from now on computes anew; a flight under way serves those aboard only."""
        with self._lock:
            flight = self._flights.pop(key, None)
            if flight is not None:
                flight.abandoned = True

    def abandon_all(self) -> None:
        """Do so for every key."""
        with self._lock:
            for flight in self._flights.values():
                flight.abandoned = True
            self._flights = {}


@contextmanager
def computing(flight: Flight, *, part_of: Flight | None) -> Iterator[None]:
    """Run the body as the work of ``flight``, on which ``part_of`` depends meanwhile."""
    if part_of is not None:
        with _waits:
            part_of.needs.append(flight)
    token = _current.set(flight)
    try:
        yield
    finally:
        _current.reset(token)
        if part_of is not None:
            with _waits:
                part_of.needs.remove(flight)


@contextmanager
def depending_on(flight: Flight) -> Iterator[None]:
    """Run the body, which needs ``flight`` to end, as part of the present computation, if there is one.

    Raises:
        DependencyCycle: the flight in turn waits for the present computation.
    """
    waiter = _current.get()
    if waiter is None:
        yield
        return
    with _waits:
        circle = _path(flight, waiter)
        if circle:
            raise cycle_error("recomputation", _names([waiter, *circle]))
        waiter.needs.append(flight)
    try:
        yield
    finally:
        with _waits:
            waiter.needs.remove(flight)


@contextmanager
def waiting_for(flight: Flight) -> Iterator[None]:
    """As :func:`depending_on`, for a body that only waits: it must not hold up the one it waits for."""
    with depending_on(flight), REPLAY_STATE.left():
        yield


def _names(flights: list[Flight]) -> list[str]:
    """Keys along a circle; a layer's flight and the worker's run of it, one after the other, are one step."""
    keys = [flight.key for flight in flights if flight.key is not None]
    return [key for place, key in enumerate(keys) if place == 0 or key != keys[place - 1] or len(set(keys)) == 1]


def _path(start: Flight, goal: Flight) -> list[Flight]:
    """Flights from ``start`` to ``goal`` along what waits for what; empty when there is no way."""
    came_from: dict[Flight, Flight | None] = {start: None}
    queue = [start]
    while queue and goal not in came_from:
        flight = queue.pop()
        for other in flight.needs:
            if other not in came_from:
                came_from[other] = flight
                queue.append(other)
    path: list[Flight] = []
    step = goal if goal in came_from else None
    while step is not None:
        path.append(step)
        step = came_from[step]
    return path[::-1]
