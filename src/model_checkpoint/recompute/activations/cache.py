"""Recomputation cache: recomputed activations within a byte budget.

What goes first when it is full is a policy's choice; no lookup and no eviction walks over the items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from model_checkpoint import forks
from model_checkpoint.recompute.activations.activation import check_activation, check_layer_id, size_of
from model_checkpoint.recompute.activations.policies import CachePolicy, LRUPolicy
from model_checkpoint.recompute.common.closing import Closing
from model_checkpoint.recompute.errors import SettingInvalid

_WHERE = "recomputation cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStats:
    """What a cache holds and how it did since it was made or cleared.

    Example:
        >>> CacheStats(cache_hits=3, cache_misses=1).hit_rate
        0.75
    """

    cached_items_count: int = 0
    current_size_bytes: int = 0
    max_size_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    evictions: int = 0

    @property
    def hit_rate(self) -> float:
        """Hits per lookup; 0.0 when there was none."""
        lookups = self.cache_hits + self.cache_misses
        return self.cache_hits / lookups if lookups else 0.0


class RecomputationCache(Closing):
    """Activations by layer, at most ``max_size_bytes`` of them; safe from any thread.

    Adding a layer again replaces it. An activation larger than the whole cache is not cached and pushes nothing out.

    Example:
        >>> cache = RecomputationCache(10)
        >>> cache.add("a", b"12345678"), cache.add("b", b"1234")
        (True, True)
        >>> cache.get("a"), cache.get("b")
        (None, b'1234')
    """

    _called = _WHERE

    def __init__(self, max_size_bytes: int, policy: CachePolicy | None = None) -> None:
        if max_size_bytes <= 0:
            raise SettingInvalid(f"{_WHERE}: its size is {max_size_bytes} bytes, expected more than 0.")
        self._max_size = max_size_bytes
        self._policy: CachePolicy = LRUPolicy() if policy is None else policy
        self._items: dict[str, tuple[Any, int]] = {}
        self._size = self._hits = self._misses = self._evictions = 0
        self._lock = forks.lock()
        self._closed = False

    def get(self, layer_id: str) -> Any:
        """The cached activation, or None; counts as a hit or a miss."""
        check_layer_id(layer_id, where=_WHERE)
        with self._lock:
            self._check_open()
            item = self._items.get(layer_id)
            if item is None:
                self._misses += 1
                return None
            self._hits += 1
            self._policy.used(layer_id)
            return item[0]

    def add(self, layer_id: str, activation: Any, *, cost: float = 1.0) -> bool:
        """Cache an activation; ``cost`` is what computing it takes, in any unit. False when it is too large."""
        check_layer_id(layer_id, where=_WHERE)
        check_activation(activation, where=_WHERE, layer_id=layer_id)
        size = size_of(activation)
        with self._lock:
            self._check_open()
            self._discard(layer_id)
            if size > self._max_size:
                return False
            while self._size + size > self._max_size:
                self._evict()
            self._items[layer_id] = (activation, size)
            self._size += size
            self._policy.added(layer_id, size, cost)
            return True

    def _evict(self) -> None:
        victim = self._policy.victim()
        if not self._discard(victim):
            raise SettingInvalid(
                f"{_WHERE}: policy {type(self._policy).__name__} would evict {victim!r}, which is not cached. Mend it."
            )
        self._evictions += 1

    def _discard(self, layer_id: str) -> bool:
        item = self._items.pop(layer_id, None)
        if item is None:
            return False
        self._size -= item[1]
        self._policy.removed(layer_id)
        return True

    def remove(self, layer_id: str) -> bool:
        """Let go of one activation; False when it was not there."""
        check_layer_id(layer_id, where=_WHERE)
        with self._lock:
            self._check_open()
            return self._discard(layer_id)

    def contains(self, layer_id: str) -> bool:
        """Whether the layer is cached; does not count as a lookup."""
        check_layer_id(layer_id, where=_WHERE)
        with self._lock:
            self._check_open()
            return layer_id in self._items

    def clear(self, *, keep_stats: bool = False) -> None:
        """Let go of everything; hits and misses start anew unless ``keep_stats``."""
        with self._lock:
            self._check_open()
            self._drop()
            if not keep_stats:
                self._hits = self._misses = self._evictions = 0

    def _drop(self) -> None:
        for layer_id in list(self._items):
            self._discard(layer_id)

    def get_stats(self) -> CacheStats:
        """The figures of this moment."""
        with self._lock:
            self._check_open()
            return CacheStats(
                cached_items_count=len(self._items),
                current_size_bytes=self._size,
                max_size_bytes=self._max_size,
                cache_hits=self._hits,
                cache_misses=self._misses,
                evictions=self._evictions,
            )

    def close(self) -> None:
        """Let go of everything; doing it again is harmless, anything else raises :class:`ClosedError`."""
        with self._lock:
            self._drop()
            self._closed = True
