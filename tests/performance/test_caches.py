"""What is remembered of checkpoints and experiments follows every change of their records."""

from dataclasses import dataclass

import numpy as np
import pytest

from model_checkpoint.performance import CacheManager, CheckpointCache, ExperimentCache


@dataclass(frozen=True)
class Row:
    id: str
    experiment_id: str
    is_best_loss: bool = False


def test_cached_metadata_follows_a_move_of_the_best_flag():
    """The flag moves from one checkpoint of a run to another, so all of the run's records are read anew."""
    table = {"c1": Row("c1", "e1", True), "c2": Row("c2", "e1"), "d1": Row("d1", "e2")}
    caches = CacheManager()

    def read(key):
        return caches.checkpoints.fetch_metadata(key, lambda: table[key])

    assert [read(key).is_best_loss for key in table] == [True, False, False]
    table |= {"c1": Row("c1", "e1"), "c2": Row("c2", "e1", True)}
    assert caches.invalidate_experiment("e1") == 2

    assert [read(key).is_best_loss for key in table] == [False, True, False]
    assert caches.global_statistics()["checkpoints.metadata"].hits == 1  # the record of the other run stayed


def test_a_record_in_the_cache_is_not_the_live_one():
    caches, record = CacheManager(), {"id": "c1", "experiment_id": "e1", "is_best_loss": False}
    caches.checkpoints.set_metadata("c1", record)

    record["is_best_loss"] = True

    assert caches.checkpoints.get_metadata("c1")["is_best_loss"] is False


def test_a_state_in_the_cache_cannot_be_trained_on():
    cache, weights = CheckpointCache(), np.zeros(3)
    cache.set_data("c1", {"w": weights})

    weights += 1
    cache.get_data("c1")["w"][:] = 2

    assert cache.get_data("c1")["w"].tolist() == [0, 0, 0]


def test_states_are_bounded_by_bytes():
    cache = CheckpointCache(max_bytes=10_000)

    assert not cache.set_data("large", np.zeros(10_000))
    for step in range(5):
        assert cache.set_data(f"c{step}", np.zeros(500))

    assert 0 < cache.stats()["data"].nbytes <= 10_000
    assert cache.stats()["data"].evicted >= 2


def test_invalidating_a_checkpoint_drops_record_and_state_and_the_figures_of_its_experiment():
    caches = CacheManager()
    caches.checkpoints.set_metadata("c1", {"experiment_id": "e1"})
    caches.checkpoints.set_data("c1", b"state", experiment_id="e1")
    caches.experiments.set("e1", {"checkpoints": 3}, kind="statistics")

    assert caches.invalidate_checkpoint("c1", "e1") == 3
    assert caches.global_statistics()["total"].items == 0


def test_cache_ttl_is_for_every_namespace():
    caches = CacheManager(cache_ttl=0.5)

    ttls = [caches.checkpoints.metadata, caches.checkpoints.data, caches.experiments._cache]

    assert [cache.default_ttl for cache in ttls] == [0.5] * 3
    assert CacheManager().checkpoints.metadata.default_ttl == 3600
    assert CacheManager().checkpoints.data.default_ttl == 1800


def test_statistics_are_told_by_namespace_and_in_total():
    caches = CacheManager(checkpoint_cache_size=1)
    for key in ("c1", "c2"):
        caches.checkpoints.set_metadata(key, {})
    caches.experiments.fetch("e1", lambda: {"name": "bert"})
    caches.experiments.get("e1")

    told = caches.global_statistics()

    assert told["checkpoints.metadata"].evicted == 1
    assert (told["experiments"].hits, told["experiments"].misses, told["experiments"].hit_rate) == (1, 1, 0.5)
    assert told["total"].items == 2


@pytest.mark.parametrize("kind", ["record", "statistics"])
def test_kinds_of_an_experiment_are_apart_until_it_is_invalidated(kind):
    cache = ExperimentCache()
    cache.set("e1", "a")
    cache.set("e1", "b", kind="statistics")

    assert cache.get("e1", kind=kind) == {"record": "a", "statistics": "b"}[kind]
    assert cache.invalidate_experiment("e1") == 2
    assert cache.get("e1", kind=kind) is None
