"""Caches: what is remembered of checkpoints and experiments, each kind in a namespace of its own.

Whoever changes a record calls ``invalidate_checkpoint`` or ``invalidate_experiment``; a value that was being loaded
meanwhile is then not kept either. What is put in and what comes out are copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from model_checkpoint.options import MIB
from model_checkpoint.performance.lru import LRUCache, LRUStats


class CheckpointCache:
    """Records of checkpoints (``metadata``) and small states (``data``), by checkpoint id.

    Example:
        >>> cache = CheckpointCache()
        >>> cache.fetch_metadata("c1", lambda: {"step": 7, "experiment_id": "e1"})["step"]
        7
        >>> cache.invalidate_experiment("e1"), cache.get_metadata("c1")
        (1, None)
    """

    def __init__(
        self,
        max_size: int = 500,
        metadata_ttl: float | None = 3600.0,
        data_ttl: float | None = 1800.0,
        max_bytes: int = 50 * MIB,
    ) -> None:
        self.metadata = LRUCache(max_size, metadata_ttl, isolate=True)
        self.data = LRUCache(max_size, data_ttl, max_bytes=max_bytes, isolate=True)

    def get_metadata(self, checkpoint_id: str) -> Any:
        """The record, or None."""
        return self.metadata.get(checkpoint_id)

    def set_metadata(self, checkpoint_id: str, record: Any, ttl: float | None = None) -> bool:
        """Keep a record; the ``experiment_id`` it has says with which experiment it goes."""
        return self.metadata.set(checkpoint_id, record, ttl, tags=_experiment_of(record))

    def fetch_metadata(self, checkpoint_id: str, load: Callable[[], Any], ttl: float | None = None) -> Any:
        """The record, loaded if it is not here."""
        return self.metadata.fetch(checkpoint_id, load, ttl, tags=_experiment_of)

    def get_data(self, checkpoint_id: str) -> Any:
        """The state, or None."""
        return self.data.get(checkpoint_id)

    def set_data(
        self, checkpoint_id: str, state: Any, ttl: float | None = None, *, experiment_id: str | None = None
    ) -> bool:
        """Keep a state; False if it is larger than the cache."""
        return self.data.set(checkpoint_id, state, ttl, tags=() if experiment_id is None else (experiment_id,))

    def invalidate_checkpoint(self, checkpoint_id: str) -> int:
        """Drop what is known of one checkpoint; how many entries there were."""
        return self.metadata.delete(checkpoint_id) + self.data.delete(checkpoint_id)

    def invalidate_experiment(self, experiment_id: str) -> int:
        """Drop what is known of the checkpoints of one experiment; how many entries there were."""
        return self.metadata.invalidate(experiment_id) + self.data.invalidate(experiment_id)

    def clear(self) -> int:
        """Drop everything; how many entries there were."""
        return self.metadata.clear() + self.data.clear()

    def stats(self) -> dict[str, LRUStats]:
        """Counts of each namespace."""
        return {"metadata": self.metadata.stats(), "data": self.data.stats()}


class ExperimentCache:
    """What is known of experiments: the record itself, statistics, or any other kind, by experiment id.

    Example:
        >>> cache = ExperimentCache()
        >>> cache.set("e1", {"name": "bert"}), cache.set("e1", {"points": 9}, kind="statistics")
        (True, True)
        >>> cache.invalidate_experiment("e1"), cache.get("e1", kind="statistics")
        (2, None)
    """

    def __init__(self, max_size: int = 1000, ttl: float | None = 1800.0) -> None:
        self._cache = LRUCache(max_size, ttl, isolate=True)

    def get(self, experiment_id: str, *, kind: str = "record") -> Any:
        """What is known, or None."""
        return self._cache.get((experiment_id, kind))

    def set(self, experiment_id: str, value: Any, ttl: float | None = None, *, kind: str = "record") -> bool:
        """Keep a value."""
        return self._cache.set((experiment_id, kind), value, ttl, tags=(experiment_id,))

    def fetch(
        self, experiment_id: str, load: Callable[[], Any], ttl: float | None = None, *, kind: str = "record"
    ) -> Any:
        """What is known, loaded if it is not here."""
        return self._cache.fetch((experiment_id, kind), load, ttl, tags=(experiment_id,))

    def invalidate_experiment(self, experiment_id: str) -> int:
        """Drop all kinds of one experiment; how many there were."""
        return self._cache.invalidate(experiment_id)

    def clear(self) -> int:
        """Drop everything; how many entries there were."""
        return self._cache.clear()

    def stats(self) -> LRUStats:
        """Counts since it was made."""
        return self._cache.stats()


class CacheManager:
    """All caches of one process; ``cache_ttl`` is the seconds that any entry lives, instead of those of its kind.

    Example:
        >>> caches = CacheManager(cache_ttl=60)
        >>> caches.checkpoints.set_metadata("c1", {"is_best_loss": False, "experiment_id": "e1"})
        True
        >>> caches.invalidate_checkpoint("c1"), caches.checkpoints.get_metadata("c1")
        (1, None)
        >>> caches.global_statistics()["checkpoints.metadata"].misses
        1
    """

    def __init__(
        self,
        checkpoint_cache_size: int = 500,
        experiment_cache_size: int = 1000,
        *,
        cache_ttl: float | None = None,
        max_bytes: int = 50 * MIB,
    ) -> None:
        ttls = {} if cache_ttl is None else {"metadata_ttl": cache_ttl, "data_ttl": cache_ttl}
        self.checkpoints = CheckpointCache(checkpoint_cache_size, **ttls, max_bytes=max_bytes)
        self.experiments = ExperimentCache(experiment_cache_size, **({} if cache_ttl is None else {"ttl": cache_ttl}))

    def invalidate_checkpoint(self, checkpoint_id: str, experiment_id: str | None = None) -> int:
        """Drop what is known of one checkpoint, and of the experiment whose figures it is part of, if named."""
        dropped = self.checkpoints.invalidate_checkpoint(checkpoint_id)
        if experiment_id is not None:
            dropped += self.experiments.invalidate_experiment(experiment_id)
        return dropped

    def invalidate_experiment(self, experiment_id: str) -> int:
        """Drop what is known of one experiment and its checkpoints: best flags may move between all of them."""
        return self.checkpoints.invalidate_experiment(experiment_id) + self.experiments.invalidate_experiment(
            experiment_id
        )

    def clear(self) -> int:
        """Drop everything; how many entries there were."""
        return self.checkpoints.clear() + self.experiments.clear()

    def global_statistics(self) -> dict[str, LRUStats]:
        """Counts of each namespace, and their ``total``."""
        spaces = {f"checkpoints.{name}": stats for name, stats in self.checkpoints.stats().items()}
        spaces["experiments"] = self.experiments.stats()
        return {**spaces, "total": sum(spaces.values(), LRUStats())}


def _experiment_of(record: Any) -> tuple[str, ...]:
    """The experiment that a record, be it a mapping or an object, belongs to."""
    known = record.get("experiment_id") if isinstance(record, Mapping) else getattr(record, "experiment_id", None)
    return () if known is None else (str(known),)
