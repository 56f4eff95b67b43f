"""Recomputation engine: runs registered functions again, in dependency order, and keeps the books.

Functions run outside every lock and may call back into the engine or a manager.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from model_checkpoint import forks
from model_checkpoint.recompute.activations.activation import check_layer_id
from model_checkpoint.recompute.activations.memory_stats import timestamp
from model_checkpoint.recompute.activations.signals import Signal
from model_checkpoint.recompute.common.closing import Closing
from model_checkpoint.recompute.common.recomputing import recomputing
from model_checkpoint.recompute.errors import (
    DependencyCycle,
    LayerExists,
    LayerNotFound,
    RecomputationException,
    SettingInvalid,
)
from model_checkpoint.recompute.functions.graph import DependencyGraph, cycle_error, list_layer_ids
from model_checkpoint.recompute.functions.replay_strategy import ExactReplay, RecomputationStrategy
from model_checkpoint.recompute.functions.single_flight import in_flight

_WHERE = "recomputation engine"
# (engine, layer) pairs being computed around the present call; copied into worker threads
_running: ContextVar[tuple[tuple[int, str], ...]] = ContextVar("running", default=())


def is_computing() -> bool:
    """Whether the caller is part of a computation under way in an engine or a manager, which others may wait for.

    Example:
        >>> is_computing()
        False
    """
    return bool(_running.get()) or in_flight()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRecomputationStats:
    """How often one layer was recomputed and how long that took; failures apart.

    Example:
        >>> stats = LayerRecomputationStats(layer_id="a", call_count=2, total_computation_time_ms=3.0)
        >>> stats.average_computation_time_ms
        1.5
    """

    layer_id: str
    call_count: int = 0
    total_computation_time_ms: float = 0.0
    failure_count: int = 0
    total_failure_time_ms: float = 0.0
    last_called_at: datetime | None = None

    @property
    def average_computation_time_ms(self) -> float:
        """Milliseconds per successful call; 0.0 when there was none."""
        return self.total_computation_time_ms / self.call_count if self.call_count else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputationStats:
    """What an engine did since it was made or cleared.

    Example:
        >>> RecomputationStats(total_recomputations=4, total_recomputation_time_ms=2.0).average_recomputation_time_ms
        0.5
    """

    total_recomputations: int = 0
    total_recomputation_time_ms: float = 0.0
    total_failures: int = 0
    total_failure_time_ms: float = 0.0
    registered_layer_count: int = 0
    layer_stats: dict[str, LayerRecomputationStats] = field(default_factory=dict)
    timestamp: datetime = field(default_factory=timestamp)

    @property
    def average_recomputation_time_ms(self) -> float:
        """Milliseconds per successful call; 0.0 when there was none."""
        return self.total_recomputation_time_ms / self.total_recomputations if self.total_recomputations else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputationEvent:
    """One run of a recompute function; ``error`` is set when it failed.

    Example:
        >>> RecomputationEvent(layer_id="a", milliseconds=0.25).error is None
        True
    """

    layer_id: str
    milliseconds: float
    error: BaseException | None = None


@dataclass(slots=True)
class _LayerTally:
    """Runs and nanoseconds of a layer, or of all of them."""

    calls: int = 0
    call_ns: int = 0
    failures: int = 0
    failure_ns: int = 0
    last: datetime | None = None

    def add(self, elapsed: int, *, failed: bool) -> None:
        if failed:
            self.failures, self.failure_ns = self.failures + 1, self.failure_ns + elapsed
        else:
            self.calls, self.call_ns = self.calls + 1, self.call_ns + elapsed
        self.last = timestamp()


@dataclass(slots=True, eq=False)
class _RegisteredFunction:
    function: Callable[[], Any]
    captured: Any
    tally: _LayerTally = field(default_factory=_LayerTally)


class RecomputationEngine(Closing):
    """Recompute functions by layer; safe from any thread, closed by ``with`` or :meth:`close`.

    ``strategy`` says how a function is run again; by default exactly as at its registration (:class:`ExactReplay`).
    Every call runs the function: it is the manager that keeps results and joins callers of one layer.

    Example:
        >>> with RecomputationEngine() as engine:
        ...     engine.register_recompute_function("a", lambda: b"a")
        ...     engine.register_recompute_function("b", lambda: b"b", dependencies=["a"])
        ...     engine.recompute_multiple(["b", "a"])
        {'b': b'b', 'a': b'a'}
    """

    _called = _WHERE

    def __init__(self, *, strategy: RecomputationStrategy | None = None) -> None:
        self.recomputed: Signal[RecomputationEvent] = Signal("recomputed")
        self.recomputation_failed: Signal[RecomputationEvent] = Signal("recomputation_failed")
        self._strategy = strategy or ExactReplay()
        self._graph = DependencyGraph()
        self._entries: dict[str, _RegisteredFunction] = {}
        self._total = _LayerTally()
        self._lock = forks.lock()
        self._closed = False

    @property
    def graph(self) -> DependencyGraph:
        """The dependencies of the registered layers."""
        return self._graph

    def register_recompute_function(
        self,
        layer_id: str,
        recompute_function: Callable[[], Any],
        dependencies: Iterable[str] | None = None,
        *,
        modules: Iterable[Any] = (),
    ) -> None:
        """Remember how ``layer_id`` is computed, under the present generators, modes and train flags.

        Args:
            layer_id: its name; blank or taken is a ``ValueError``.
            recompute_function: gives the activation, without arguments.
            dependencies: layers that must be computed before it; they may be registered later.
            modules: torch modules whose train flags matter, besides those the function visibly holds.
        """
        check_layer_id(layer_id, where=_WHERE)
        if not callable(recompute_function):
            raise SettingInvalid(
                f"{_WHERE}: the function of {layer_id!r} is {recompute_function!r}, expected a callable."
            )
        needed = [] if dependencies is None else list_layer_ids(dependencies, where=_WHERE)
        self._check_open()
        if layer_id in self._entries:
            raise _taken(layer_id)
        entry = _RegisteredFunction(recompute_function, self._strategy.capture(recompute_function, modules))
        with self._lock:
            self._check_open()
            if self._entries.setdefault(layer_id, entry) is not entry:
                raise _taken(layer_id)
            if needed:
                self._graph.add_dependency(layer_id, needed)

    def unregister_recompute_function(self, layer_id: str) -> bool:
        """Forget one layer; a run under way ends normally. False when it was not there."""
        check_layer_id(layer_id, where=_WHERE)
        self._check_open()
        with self._lock:
            self._graph.remove(layer_id)
            return self._entries.pop(layer_id, None) is not None

    def has_recompute_function(self, layer_id: str) -> bool:
        """Whether the layer is registered."""
        check_layer_id(layer_id, where=_WHERE)
        self._check_open()
        return layer_id in self._entries

    def recompute(self, layer_id: str) -> Any:
        """Run the function of one layer and return what it gives; its dependencies are not run.

        Raises:
            LayerNotFound: no function is registered (a ``KeyError``).
            RecomputationException: the function failed or gave None (a ``RuntimeError``); the next call starts afresh.
            DependencyCycle: the function asked, directly or not, for its own layer.
        """
        check_layer_id(layer_id, where=_WHERE)
        self._check_open()
        entry = self._entries.get(layer_id)
        if entry is None:
            raise LayerNotFound(f"{_WHERE}: no function for layer {layer_id!r}. Register one first.")
        around = _running.get()
        if (id(self), layer_id) in around:
            circle = [layer for engine, layer in around if engine == id(self)]
            raise cycle_error(_WHERE, [*circle[circle.index(layer_id) :], layer_id])
        token = _running.set((*around, (id(self), layer_id)))
        try:
            return self._run(layer_id, entry)
        finally:
            _running.reset(token)

    def _run(self, layer_id: str, entry: _RegisteredFunction) -> Any:
        start = time.perf_counter_ns()
        try:
            value = run_checked(layer_id, lambda: self._strategy.run(entry.function, entry.captured), where=_WHERE)
        except BaseException as error:
            self._record(layer_id, entry, time.perf_counter_ns() - start, error)
            raise
        self._record(layer_id, entry, time.perf_counter_ns() - start, None)
        return value

    def _record(self, layer_id: str, entry: _RegisteredFunction, elapsed: int, error: BaseException | None) -> None:
        with self._lock:
            entry.tally.add(elapsed, failed=error is not None)
            if self._entries.get(layer_id) is entry:  # else cleared meanwhile: a new count has begun
                self._total.add(elapsed, failed=error is not None)
        signal = self.recomputed if error is None else self.recomputation_failed
        if signal:
            signal.emit(RecomputationEvent(layer_id=layer_id, milliseconds=elapsed / 1e6, error=error))

    def recompute_multiple(self, layer_ids: Iterable[str], *, with_dependencies: bool = False) -> dict[str, Any]:
        """Run several layers, each once, dependencies first, and return them in the order asked for.

        Only what was asked for runs; ``with_dependencies`` also runs what that needs, without returning it.

        Raises:
            DependencyCycle: the layers need each other in a circle.
        """
        self._check_open()
        wanted = list(dict.fromkeys(list_layer_ids(layer_ids, where=_WHERE)))
        order = self._graph.get_closure(wanted) if with_dependencies else self._graph.get_topological_order(wanted)
        self.check_registered(order)
        results = {layer: self.recompute(layer) for layer in order}
        return {layer: results[layer] for layer in wanted}

    def check_registered(self, layer_ids: Iterable[str]) -> None:
        """Raise :class:`LayerNotFound` for the first layer without a function, before anything runs."""
        for layer in layer_ids:
            if layer not in self._entries:
                raise LayerNotFound(f"{_WHERE}: no function for layer {layer!r}. Register one first.")

    def clear(self) -> None:
        """Forget all functions, dependencies and statistics; runs under way end normally, uncounted."""
        self._check_open()
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            self._entries = {}
            self._graph.clear()
            self._total = _LayerTally()

    def get_stats(self) -> RecomputationStats:
        """The figures of this moment."""
        self._check_open()
        with self._lock:
            total = self._total
            return RecomputationStats(
                total_recomputations=total.calls,
                total_recomputation_time_ms=total.call_ns / 1e6,
                total_failures=total.failures,
                total_failure_time_ms=total.failure_ns / 1e6,
                registered_layer_count=len(self._entries),
                layer_stats={layer: _layer_stats(layer, entry.tally) for layer, entry in self._entries.items()},
            )

    def get_layer_stats(self, layer_id: str) -> LayerRecomputationStats | None:
        """The figures of one layer; None when it is unknown or blank."""
        self._check_open()
        with self._lock:
            entry = self._entries.get(layer_id)
            return None if entry is None else _layer_stats(layer_id, entry.tally)

    def close(self) -> None:
        """Let go of every function; doing it again is harmless, anything else raises :class:`ClosedError`."""
        self._closed = True
        self._drop()


def run_checked(layer_id: str, function: Callable[[], Any], *, where: str) -> Any:
    """Call a recompute function; failures and None become a :class:`RecomputationException` that names the layer.

    Example:
        >>> run_checked("a", lambda: 5, where="engine")
        5
    """
    try:
        with recomputing():
            value = function()
    except DependencyCycle:
        raise  # it names the whole circle; wrapping it once per layer would bury that
    except Exception as error:  # a user's function may raise anything; the layer id must travel with it
        raise RecomputationException(
            f"{where}: the recompute function of {layer_id!r} failed: {type(error).__name__}: {error}. "
            "See the cause; the next call starts afresh.",
            error,
            layer_id=layer_id,
        ) from error
    if value is None:
        raise RecomputationException(
            f"{where}: the recompute function of {layer_id!r} returned None, expected an activation.",
            layer_id=layer_id,
        )
    return value


def _layer_stats(layer_id: str, tally: _LayerTally) -> LayerRecomputationStats:
    return LayerRecomputationStats(
        layer_id=layer_id,
        call_count=tally.calls,
        total_computation_time_ms=tally.call_ns / 1e6,
        failure_count=tally.failures,
        total_failure_time_ms=tally.failure_ns / 1e6,
        last_called_at=tally.last,
    )


def _taken(layer_id: str) -> LayerExists:
    return LayerExists(f"{_WHERE}: layer {layer_id!r} has a function already. Unregister it, or take another id.")
