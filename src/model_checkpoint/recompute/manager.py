"""Checkpoint manager: keeps activations by layer and computes dropped ones again.

A hit takes no lock but that of its own entry. Books are kept as running totals under the manager's lock, which is held
for a few assignments only: never while storing, reading, computing or calling listeners.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from model_checkpoint import forks
from model_checkpoint.recompute.activations.activation import check_activation, check_layer_id, size_of
from model_checkpoint.recompute.activations.cache import RecomputationCache
from model_checkpoint.recompute.activations.config import CheckpointConfig
from model_checkpoint.recompute.activations.ledger import Ledger, LedgerEntry
from model_checkpoint.recompute.activations.memory_stats import MemoryStats
from model_checkpoint.recompute.activations.signals import Signal
from model_checkpoint.recompute.activations.stores import ActivationStore, MemoryStore
from model_checkpoint.recompute.activations.strategies import CheckpointStrategyProtocol, create_strategy
from model_checkpoint.recompute.activations.tracker import MemoryTracker
from model_checkpoint.recompute.common.closing import Closing
from model_checkpoint.recompute.errors import ClosedError, LayerExists, LayerNotFound
from model_checkpoint.recompute.functions.async_recomputation import AsyncRecomputationEngine
from model_checkpoint.recompute.functions.recomputation_engine import RecomputationEngine, run_checked
from model_checkpoint.recompute.functions.recomputer import Recomputer
from model_checkpoint.recompute.functions.single_flight import Flight, SingleFlight

_WHERE = "checkpoint manager"


class CheckpointManager(Closing):
    """Activations by layer; safe from any thread, closed by ``with`` or :meth:`close`.

    Activations are kept as they are handed in (not detached, not copied) unless the store says otherwise. Of several
    callers that miss one layer, one computes and all get its result. Recompute functions may call back.

    Args:
        config: switches parts on: the recomputation cache, an asynchronous engine, a tracker, and the strategy
            behind :meth:`offer_checkpoint`. Without it there are none of these.
        engine: asked on a miss without a function; by default one made here if the config wants it asynchronous.
        cache: keeps what the engine recomputed, within its bytes, instead of registering it.
        tracker: gets every allocation and deallocation.
        store: where activations are kept; in memory by default.

    Parts handed in stay the caller's: closing the manager takes what is its own out of them and leaves them open.

    Example:
        >>> with CheckpointManager() as manager:
        ...     manager.register_checkpoint("block1", b"abc")
        ...     manager.retrieve_or_recompute("block1"), manager.retrieve_or_recompute("block2", lambda: b"de")
        ...     manager.get_memory_stats().current_memory_used
        (b'abc', b'de')
        5
    """

    _called = _WHERE

    def __init__(
        self,
        config: CheckpointConfig | None = None,
        engine: Recomputer | None = None,
        cache: RecomputationCache | None = None,
        tracker: MemoryTracker | None = None,
        store: ActivationStore | None = None,
    ) -> None:
        if config is not None:
            config.validate()
        self.config = config
        self._owned: list[AsyncRecomputationEngine | RecomputationEngine | RecomputationCache] = []
        self._engine = engine if engine is not None else self._make_engine()
        self._cache = cache if cache is not None else self._make_cache()
        if tracker is None and config is not None and config.track_statistics:
            tracker = MemoryTracker()
        self._tracker = tracker
        self._store: ActivationStore = MemoryStore() if store is None else store
        self._strategy: CheckpointStrategyProtocol | None = None
        if config is not None:
            self._strategy = create_strategy(config, tracker)
        self._entries: dict[str, LedgerEntry] = {}
        self._ledger = Ledger(counts_sharing=self._store.borrows)
        self._flights = SingleFlight()
        self._lock = forks.lock()
        self._closed = False
        self.checkpoint_registered: Signal[str] = Signal("checkpoint_registered")
        self.checkpoint_hit: Signal[str] = Signal("checkpoint_hit")
        self.checkpoint_recomputed: Signal[str] = Signal("checkpoint_recomputed")
        self.checkpoint_removed: Signal[str] = Signal("checkpoint_removed")

    def _make_engine(self) -> Recomputer:
        wants_async = self.config is not None and self.config.use_async_recomputation
        engine = AsyncRecomputationEngine() if wants_async else RecomputationEngine()
        self._owned.append(engine)
        return engine

    def _make_cache(self) -> RecomputationCache | None:
        config = self.config
        if config is None or not config.enable_recomputation_cache or not config.max_recomputation_cache_size:
            return None
        cache = RecomputationCache(config.max_recomputation_cache_size)
        self._owned.append(cache)
        return cache

    @property
    def engine(self) -> Recomputer:
        """The engine asked on a miss without a function."""
        return self._engine

    @property
    def cache(self) -> RecomputationCache | None:
        """The cache of what the engine recomputed, if there is one."""
        return self._cache

    @property
    def tracker(self) -> MemoryTracker | None:
        """The tracker told of allocations, if there is one."""
        return self._tracker

    @property
    def store(self) -> ActivationStore:
        """Where activations are kept."""
        return self._store

    @property
    def checkpoint_count(self) -> int:
        """Checkpoints stored now."""
        self._check_open()
        return len(self._entries)

    def register_checkpoint(self, layer_id: str, activation: Any) -> None:
        """Keep an activation.

        Raises:
            LayerExists: the layer has one already (a ``ValueError``, as for a blank id or None).
        """
        self._check(layer_id)
        check_activation(activation, where=_WHERE, layer_id=layer_id)
        if layer_id in self._entries or self._keep(layer_id, activation, accesses=0) is not None:
            raise LayerExists(f"{_WHERE}: layer {layer_id!r} has a checkpoint already. Remove it, or take another id.")

    def offer_checkpoint(self, layer_id: str, activation: Any, layer_index: int) -> bool:
        """Keep an activation if the config's strategy wants it (always, without one) and say whether.

        One that is not kept counts towards the baseline of the savings.
        """
        self._check(layer_id)
        check_activation(activation, where=_WHERE, layer_id=layer_id)
        if self._strategy is None or self._strategy.should_checkpoint(layer_id, activation, layer_index):
            self.register_checkpoint(layer_id, activation)
            return True
        with self._lock:
            self._ledger.see(layer_id, size_of(activation))
        return False

    def _keep(
        self, layer_id: str, activation: Any, *, accesses: int, flight: Flight | None = None
    ) -> LedgerEntry | None:
        """Store an activation; returns the entry that was there before, which then stays."""
        nbytes = size_of(activation)
        entry = LedgerEntry(self._store.put(layer_id, activation), nbytes, accesses)
        with self._lock:
            closed, there = self._closed, self._entries.get(layer_id)
            wanted = not closed and there is None and not (flight is not None and flight.abandoned)
            news: list[Callable[[], None]] = []
            if wanted:
                self._entries[layer_id] = entry
                self._ledger.add(layer_id, entry, activation)
                news = [] if self._tracker is None else self._tracker.book_allocation(layer_id, nbytes)
        if not wanted:
            entry.slot.release()
            if closed and flight is None:
                self._check_open()
            return there
        _tell(news)
        self.checkpoint_registered.emit(layer_id)
        return None

    def retrieve_or_recompute(self, layer_id: str, recompute_func: Callable[[], Any] | None = None) -> Any:
        """Return the activation of a layer, computed again if it is not stored.

        What ``recompute_func`` gives is registered; what the engine gives is cached if there is a cache, else
        registered too.

        Raises:
            LayerNotFound: not stored, no function given, and the engine knows none (a ``KeyError``).
            RecomputationException: the function failed or gave None (a ``RuntimeError``); the next call starts afresh.
            DependencyCycle: functions wait for each other in a circle.
        """
        entry = self._entries.get(layer_id)
        if entry is not None:
            try:
                activation = entry.slot.read()
            except LookupError:
                pass  # removed between the two lines above
            else:
                entry.count_access()
                if self.checkpoint_hit:
                    self.checkpoint_hit.emit(layer_id)
                return activation
        return self._miss(layer_id, recompute_func)

    def _miss(self, layer_id: str, function: Callable[[], Any] | None) -> Any:
        self._check(layer_id)
        if self._cache is not None:
            cached = self._cache.get(layer_id)
            if cached is not None:
                return cached
        compute: Callable[[Flight], Any] | None = None
        if function is not None:
            compute = partial(self._compute, layer_id, function)
        elif self._engine.has_recompute_function(layer_id):
            compute = partial(self._ask_engine, layer_id)
        activation, led = self._flights.run(layer_id, compute)
        if not led and (entry := self._entries.get(layer_id)) is not None:
            entry.count_access()  # whoever computed it counted for himself alone
        if activation is None:
            raise LayerNotFound(
                f"{_WHERE}: layer {layer_id!r} has no checkpoint and there is no function to recompute it. "
                "Register the activation, pass a function, or register one with the engine."
            )
        return activation

    def _compute(self, layer_id: str, function: Callable[[], Any], flight: Flight) -> Any:
        stored = self._stored(layer_id)
        if stored is not None:
            return stored
        activation = run_checked(layer_id, function, where=_WHERE)
        self.checkpoint_recomputed.emit(layer_id)
        return self._adopt(layer_id, activation, flight)

    def _adopt(self, layer_id: str, activation: Any, flight: Flight) -> Any:
        check_activation(activation, where=_WHERE, layer_id=layer_id)
        there = self._keep(layer_id, activation, accesses=1, flight=flight)
        stored = None if there is None else self._stored(layer_id)
        return activation if stored is None else stored

    def _ask_engine(self, layer_id: str, flight: Flight) -> Any:
        stored = self._stored(layer_id)
        if stored is not None:
            return stored
        start = time.perf_counter()
        activation = self._engine.recompute(layer_id)
        cost = time.perf_counter() - start
        self.checkpoint_recomputed.emit(layer_id)
        if self._cache is None:
            return self._adopt(layer_id, activation, flight)
        with self._lock:  # so that no clear or close comes between the question and the answer
            self._ledger.see(layer_id, size_of(activation))
            if not flight.abandoned and not self._closed:
                self._cache.add(layer_id, activation, cost=cost)
        return activation

    def _stored(self, layer_id: str) -> Any:
        """What another flight has stored since the miss, or None."""
        entry = self._entries.get(layer_id)
        if entry is None:
            return self._cache.get(layer_id) if self._cache is not None and self._cache.contains(layer_id) else None
        try:
            activation = entry.slot.read()
        except LookupError:
            return None
        entry.count_access()
        return activation

    def has_checkpoint(self, layer_id: str) -> bool:
        """Whether the layer is stored; does not count as an access."""
        self._check(layer_id)
        return layer_id in self._entries

    def get_access_count(self, layer_id: str) -> int:
        """How often the layer was retrieved since it was stored; 0 when it is not."""
        self._check(layer_id)
        entry = self._entries.get(layer_id)
        return 0 if entry is None else entry.accesses

    def remove(self, layer_id: str) -> bool:
        """Let go of one layer, also in the cache; False when it was nowhere.

        A computation of it under way serves those who wait for it, and is not stored.
        """
        self._check(layer_id)
        with self._lock:
            self._flights.abandon(layer_id)
            entry = self._entries.pop(layer_id, None)
            cached = self._cache is not None and self._cache.remove(layer_id)
            news: list[Callable[[], None]] = []
            if entry is not None:
                self._ledger.subtract(entry)
                news = [] if self._tracker is None else self._tracker.book_deallocation(layer_id)
        if entry is not None:
            self._let_go({layer_id: entry}, news)
        return cached or entry is not None

    def clear_checkpoints(self) -> None:
        """Let go of all layers, also in the cache; the peak stays. Objects the caller holds live on."""
        self._check_open()
        self._clear(close=False)

    def _clear(self, *, close: bool) -> None:
        with self._lock:
            self._closed = self._closed or close
            entries, self._entries = self._entries, {}
            self._flights.abandon_all()
            self._ledger.clear()
            news = [] if self._tracker is None else [n for e in entries for n in self._tracker.book_deallocation(e)]
            if self._cache is not None:
                with suppress(ClosedError):  # its owner closed it: it holds nothing
                    self._cache.clear(keep_stats=True)
        self._let_go(entries, news)

    def _let_go(self, entries: dict[str, LedgerEntry], news: list[Callable[[], None]]) -> None:
        for entry in entries.values():
            entry.slot.release()
        _tell(news)
        if self.checkpoint_removed:
            for layer_id in entries:
                self.checkpoint_removed.emit(layer_id)

    def reset_peak(self) -> None:
        """Let the peak start from what is stored now."""
        self._check_open()
        with self._lock:
            self._ledger.peak = self._ledger.current

    def get_memory_stats(self, *, ranked: int = 5, baseline_bytes: int | None = None) -> MemoryStats:
        """The figures of this moment.

        Args:
            ranked: how many of the most and least accessed layers to name; finding them walks over all layers,
                which ``ranked=0`` spares.
            baseline_bytes: what storing all activations would take; by default the sum of all layers seen since the
                last clear, kept, removed, declined or recomputed.
        """
        self._check_open()
        with self._lock:
            entries = list(self._entries.items()) if ranked else []
            stats = self._ledger.stats(count=len(self._entries), spilled=self._store.spilled_bytes)
        if baseline_bytes is not None:
            stats = replace(stats, baseline_memory=baseline_bytes)
        most, least = _rank(entries, ranked)
        return replace(stats, most_accessed=most, least_accessed=least)

    def close(self) -> None:
        """Let go of everything; doing it again is harmless, anything else raises :class:`ClosedError`."""
        if not self._closed:
            self._clear(close=True)
            for part in self._owned:
                part.close()

    def _check(self, layer_id: object) -> None:
        check_layer_id(layer_id, where=_WHERE)
        self._check_open()


def _rank(entries: list[tuple[str, LedgerEntry]], places: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids of the most and of the least accessed layers; among equals the earlier registered comes first."""
    counts = [(entry.accesses, place) for place, (_, entry) in enumerate(entries)]
    most = heapq.nsmallest(places, [(-accesses, place) for accesses, place in counts])
    least = heapq.nsmallest(places, counts)
    return tuple(entries[place][0] for _, place in most), tuple(entries[place][0] for _, place in least)


def _tell(news: list[Callable[[], None]]) -> None:
    for announce in news:
        announce()
