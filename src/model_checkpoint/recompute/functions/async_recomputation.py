"""Asynchronous recomputation: several layers at once on a bounded number of threads.

No thread waits for a dependency: a layer is handed to the pool when the last one it needs is done. A recompute function
that waits for more work does that work itself, so nesting cannot exhaust the pool.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any, Generic, TypeVar

from model_checkpoint import forks
from model_checkpoint.recompute.activations.activation import check_layer_id
from model_checkpoint.recompute.common.closing import Closing
from model_checkpoint.recompute.errors import RecomputationCancelled
from model_checkpoint.recompute.functions.graph import DependencyGraph, list_layer_ids
from model_checkpoint.recompute.functions.recomputation_engine import (
    LayerRecomputationStats,
    RecomputationEngine,
    RecomputationStats,
    is_computing,
)
from model_checkpoint.recompute.functions.replay_state import REPLAY_STATE
from model_checkpoint.recompute.functions.replay_strategy import RecomputationStrategy
from model_checkpoint.recompute.functions.single_flight import Flight, computing, depending_on

_WHERE = "async recomputation engine"
_batch: ContextVar[_Batch | None] = ContextVar("batch", default=None)

Result = TypeVar("Result")


def cancellation_requested() -> bool:
    """Whether the recomputation that runs this code was cancelled; long functions may ask, and stop early.

    Example:
        >>> cancellation_requested()
        False
    """
    batch = _batch.get()
    return batch is not None and batch.is_cancelled()


class _Batch:
    """Layers recomputed together; results are complete when ``future`` is."""

    def __init__(self, engine: RecomputationEngine, layer_ids: Iterable[str], cancel: threading.Event | None) -> None:
        wanted = list(layer_ids)
        self.future: Future[dict[str, Any]] = Future()
        self._engine, self._wanted, self._cancel = engine, wanted, cancel
        self._needs = engine.graph.restrict(wanted)
        self._followers: dict[str, list[str]] = {layer: [] for layer in wanted}
        for layer, needs in self._needs.items():
            for needed in needs:
                self._followers[needed].append(layer)
        self._ready = deque(layer for layer, needs in self._needs.items() if not needs)
        self._results: dict[str, Any] = {}
        self._context = copy_context()
        self.flight = Flight(None)  # what others that wait for this batch wait for
        self._lock = threading.Lock()

    def start(self, submit: Callable[[Callable[[], Any]], object]) -> None:
        """Hand every ready layer to the pool; later ones follow from the workers."""
        self._submit = submit
        if not self._wanted:
            self.future.set_result({})
        self._offer(len(self._ready))

    def _offer(self, layers: int) -> None:
        for _ in range(layers):
            try:
                self._submit(self.step)
            except RuntimeError:  # the pool was shut down meanwhile
                self.abort()

    def is_cancelled(self) -> bool:
        """Whether nobody wants the result any more."""
        return self.future.done() or (self._cancel is not None and self._cancel.is_set())

    def abort(self) -> bool:
        """Start nothing more and fail as cancelled; False when everything was started or done."""
        with self._lock:
            started_all = not self._ready and not any(self._needs.values())
            if self.future.done() or started_all:
                return False
            self._ready.clear()
            self._fail(RecomputationCancelled(_cancelled(self._wanted), layer_id=self._wanted[0]))
            return True

    def stay_behind(self) -> None:
        """In a forked child: fail as cancelled, since only the parent has the threads that were at it."""
        self._lock, self.future = threading.Lock(), Future()  # either may be held by a thread that is not here
        self._ready.clear()
        self._fail(RecomputationCancelled(_cancelled(self._wanted), layer_id=next(iter(self._wanted), "")))

    def step(self) -> bool:
        """Recompute one ready layer; False when there was none."""
        if self._cancel is not None and self._cancel.is_set():
            self.abort()
        with self._lock:
            if not self._ready:
                return False
            layer = self._ready.popleft()
        try:
            value = self._context.copy().run(self._compute, layer)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for the result
            with self._lock:
                self._ready.clear()
                self._fail(error)
            return True
        self._finish(layer, value)
        return True

    def _compute(self, layer: str) -> Any:
        _batch.set(self)
        with computing(Flight(layer), part_of=self.flight):
            return self._engine.recompute(layer)

    def _finish(self, layer: str, value: Any) -> None:
        with self._lock:
            if self.future.done():
                return
            self._results[layer] = value
            del self._needs[layer]
            for other in self._followers[layer]:
                self._needs[other].discard(layer)
            ready = [other for other in self._followers[layer] if not self._needs[other]]
            self._ready.extend(ready)
            if not self._needs:
                self._complete()
        self._offer(len(ready))

    def _complete(self) -> None:
        if self._cancel is not None and self._cancel.is_set():
            self._fail(RecomputationCancelled(_cancelled(self._wanted), layer_id=self._wanted[0]))
        else:
            self.future.set_result({layer: self._results[layer] for layer in self._wanted})

    def _fail(self, error: BaseException) -> None:
        if not self.future.done():
            self._results.clear()
            self.future.set_exception(error)


class RecomputationHandle(Generic[Result]):
    """Work under way: wait for it with :meth:`result`, or await it.

    Example:
        >>> with AsyncRecomputationEngine(1) as engine:
        ...     engine.register_recompute_function("a", lambda: b"a")
        ...     handle = engine.recompute_async("a")
        ...     handle.result(), handle.done()
        (b'a', True)
    """

    def __init__(
        self, engine: AsyncRecomputationEngine, batch: _Batch, pick: Callable[[dict[str, Any]], Result]
    ) -> None:
        self._engine, self._work, self._pick = engine, batch, pick

    def result(self, timeout: float | None = None) -> Result:
        """The result, once it is there.

        Raises:
            TimeoutError: it was not there in time; the work goes on.
            RecomputationCancelled: it was cancelled.
            RecomputationException: a function failed or gave None.
            DependencyCycle: the work waits for the function that asks here.
        """
        with depending_on(self._work.flight):
            if self._engine.owns_this_thread() or is_computing():
                while self._work.step():  # workers may be waiting for the very function that waits here
                    pass
            with REPLAY_STATE.left():
                return self._pick(self._work.future.result(timeout))

    def done(self) -> bool:
        """Whether there is a result, a failure or a cancellation."""
        return self._work.future.done()

    def cancel(self) -> bool:
        """Start nothing more; a function that runs is not stopped, but see :func:`cancellation_requested`.

        Returns:
            False when everything had been started, so that the result will still come.
        """
        return self._work.abort()

    def __await__(self) -> Generator[Any, None, Result]:
        future = asyncio.wrap_future(self._work.future)
        try:
            return self._pick((yield from asyncio.shield(future).__await__()))
        except asyncio.CancelledError:
            self._work.abort()  # whoever awaited is gone
            raise


class AsyncRecomputationEngine(Closing):
    """Recomputes on worker threads; safe from any thread, closed by ``with`` or :meth:`close`.

    Args:
        max_degree_of_parallelism: functions that run at once; -1 (or any number below 1) means one per CPU. A
            recompute function that waits for others runs them in its own thread, beside these.
        engine: registry, dependencies and statistics to work on; its own by default.
        strategy: how functions are run again, for an engine of its own.

    Example:
        >>> with AsyncRecomputationEngine(2) as engine:
        ...     engine.register_recompute_function("a", lambda: b"a")
        ...     engine.recompute_multiple_async(["a"]).result()
        {'a': b'a'}
    """

    _called = _WHERE

    def __init__(
        self,
        max_degree_of_parallelism: int = -1,
        *,
        engine: RecomputationEngine | None = None,
        strategy: RecomputationStrategy | None = None,
    ) -> None:
        self._parallel = max_degree_of_parallelism if max_degree_of_parallelism > 0 else os.cpu_count() or 1
        self._owns_engine = engine is None
        self._engine = RecomputationEngine(strategy=strategy) if engine is None else engine
        self._worker = threading.local()
        self._pool = self._new_pool()
        self._batches: set[_Batch] = set()
        self._lock = forks.lock()
        self._closed = False
        forks.in_child(self._begin_anew)

    def _new_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._parallel, "recompute", initializer=self._mark_worker)

    def _begin_anew(self) -> None:
        """A forked child has workers of its own; what its parent's are at is not for it to wait for."""
        batches, self._batches = self._batches, set()
        for batch in batches:
            batch.stay_behind()
        if not self._closed:
            self._pool = self._new_pool()

    def _mark_worker(self) -> None:
        self._worker.ours = True

    def owns_this_thread(self) -> bool:
        """Whether the caller is one of this engine's workers."""
        return getattr(self._worker, "ours", False)

    @property
    def max_degree_of_parallelism(self) -> int:
        """Functions that run at once, at most."""
        return self._parallel

    @property
    def engine(self) -> RecomputationEngine:
        """The engine that holds functions, dependencies and statistics."""
        return self._engine

    @property
    def graph(self) -> DependencyGraph:
        """The dependencies of the registered layers."""
        return self._engine.graph

    def register_recompute_function(
        self,
        layer_id: str,
        recompute_function: Callable[[], Any],
        dependencies: Iterable[str] | None = None,
        *,
        modules: Iterable[Any] = (),
    ) -> None:
        """Remember how a layer is computed; see :meth:`RecomputationEngine.register_recompute_function`."""
        self._check_open()
        self._engine.register_recompute_function(layer_id, recompute_function, dependencies, modules=modules)

    def has_recompute_function(self, layer_id: str) -> bool:
        """Whether the layer is registered."""
        self._check_open()
        return self._engine.has_recompute_function(layer_id)

    def recompute_async(self, layer_id: str, cancel: threading.Event | None = None) -> RecomputationHandle[Any]:
        """Start recomputing one layer; ``cancel``, once set, keeps it from starting or drops its result.

        Raises:
            LayerNotFound: no function is registered (a ``KeyError``).
        """
        check_layer_id(layer_id, where=_WHERE)
        return RecomputationHandle(self, self._start([layer_id], cancel), lambda results: results[layer_id])

    def recompute_multiple_async(
        self, layer_ids: Iterable[str], cancel: threading.Event | None = None
    ) -> RecomputationHandle[dict[str, Any]]:
        """Start recomputing several layers, each once, dependencies first, else side by side.

        The first failure stops what has not started; the result comes in the order asked for.
        """
        wanted = list(dict.fromkeys(list_layer_ids(layer_ids, where=_WHERE)))
        return RecomputationHandle(self, self._start(wanted, cancel), dict)

    def _start(self, layer_ids: list[str], cancel: threading.Event | None) -> _Batch:
        self._check_open()
        self._engine.check_registered(layer_ids)
        batch = _Batch(self._engine, layer_ids, cancel)
        with self._lock:
            self._check_open()
            self._batches.add(batch)
        batch.future.add_done_callback(lambda _: self._forget(batch))
        batch.start(self._pool.submit)
        return batch

    def _forget(self, batch: _Batch) -> None:
        with self._lock:
            self._batches.discard(batch)

    def recompute(self, layer_id: str, cancel: threading.Event | None = None) -> Any:
        """Recompute one layer on a worker and wait for it."""
        return self.recompute_async(layer_id, cancel).result()

    def recompute_multiple(self, layer_ids: Iterable[str], cancel: threading.Event | None = None) -> dict[str, Any]:
        """Recompute several layers on workers and wait for them."""
        return self.recompute_multiple_async(layer_ids, cancel).result()

    def clear(self) -> None:
        """Forget all functions, dependencies and statistics; see :meth:`RecomputationEngine.clear`."""
        self._check_open()
        self._engine.clear()

    def get_stats(self) -> RecomputationStats:
        """The figures of this moment."""
        self._check_open()
        return self._engine.get_stats()

    def get_layer_stats(self, layer_id: str) -> LayerRecomputationStats | None:
        """The figures of one layer; None when it is unknown."""
        self._check_open()
        return self._engine.get_layer_stats(layer_id)

    def close(self) -> None:
        """Cancel what has not started, wait for what runs, let go of all functions; harmless to do again."""
        with self._lock:
            self._closed = True
            batches = list(self._batches)
        for batch in batches:
            batch.abort()
        self._pool.shutdown(wait=not self.owns_this_thread())
        if self._owns_engine:
            self._engine.close()


def _cancelled(layer_ids: list[str]) -> str:
    shown = ", ".join(layer_ids[:5]) + (", ..." if len(layer_ids) > 5 else "")
    return f"{_WHERE}: the recomputation of {shown} was cancelled. Ask again if you need it."
