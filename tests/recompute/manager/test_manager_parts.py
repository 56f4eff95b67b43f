"""The manager with its parts: config, engine, cache, tracker, store."""

import gc
import os
import weakref

import numpy as np
import pytest
import torch
from tests.ground.crowds import in_threads

from model_checkpoint.recompute import (
    AsyncRecomputationEngine,
    CheckpointConfig,
    CheckpointManager,
    CheckpointStrategy,
    ClosedError,
    DiskStore,
    MemoryTracker,
    RecomputationCache,
    RecomputationEngine,
    RecomputationException,
    Recomputer,
    SpillDamaged,
)


def test_a_miss_without_a_function_asks_the_engine():
    with RecomputationEngine() as engine, CheckpointManager(engine=engine) as manager:
        engine.register_recompute_function("a", lambda: b"made")

        assert manager.retrieve_or_recompute("a") == b"made"
        assert manager.has_checkpoint("a")
        manager.retrieve_or_recompute("a")
        assert engine.get_stats().total_recomputations == 1


def test_a_manager_on_its_own_has_an_engine_to_register_with():
    manager = CheckpointManager()
    manager.engine.register_recompute_function("a", lambda: b"made")

    assert manager.retrieve_or_recompute("a") == b"made"
    assert isinstance(manager.engine, Recomputer)


def test_none_from_the_engine_is_an_error_and_the_next_call_works():
    manager = CheckpointManager()
    answers = [None, b"made"]
    manager.engine.register_recompute_function("a", lambda: answers.pop(0))

    with pytest.raises(RecomputationException, match="'a' returned None"):
        manager.retrieve_or_recompute("a")

    assert manager.retrieve_or_recompute("a") == b"made"


def test_a_given_function_goes_before_the_engine():
    manager = CheckpointManager()
    manager.engine.register_recompute_function("a", lambda: pytest.fail("not asked"))

    assert manager.retrieve_or_recompute("a", lambda: b"given") == b"given"


def test_with_a_cache_what_the_engine_makes_is_cached_within_its_bytes_not_registered():
    engine, cache = RecomputationEngine(), RecomputationCache(100)
    manager = CheckpointManager(engine=engine, cache=cache)
    for layer in "abc":
        engine.register_recompute_function(layer, lambda: bytes(40))

    for layer in "abcbc":
        manager.retrieve_or_recompute(layer)

    assert manager.checkpoint_count == 0
    assert cache.get_stats().cached_items_count == 2
    assert engine.get_stats().total_recomputations == 3
    assert manager.get_memory_stats().memory_savings == 120


def test_remove_and_clear_also_empty_the_cache_and_keep_its_counts():
    cache = RecomputationCache(100)
    manager = CheckpointManager(cache=cache)
    for layer in "ab":
        manager.engine.register_recompute_function(layer, lambda: bytes(10))
        manager.retrieve_or_recompute(layer)

    assert manager.remove("a") is True
    assert not cache.contains("a")
    manager.clear_checkpoints()

    assert cache.get_stats().cached_items_count == 0
    assert cache.get_stats().cache_misses > 0


def test_the_config_switches_cache_async_engine_and_tracker_on():
    config = CheckpointConfig(use_async_recomputation=True, max_recomputation_cache_size=64)

    with CheckpointManager(config=config) as manager:
        assert isinstance(manager.engine, AsyncRecomputationEngine)
        assert manager.cache.get_stats().max_size_bytes == 64
        assert isinstance(manager.tracker, MemoryTracker)
        manager.engine.register_recompute_function("a", lambda: b"made")
        assert manager.retrieve_or_recompute("a") == b"made"
        assert manager.cache.contains("a")


@pytest.mark.parametrize("off", [{"enable_recomputation_cache": False}, {"max_recomputation_cache_size": 0}], ids=str)
def test_the_config_switches_them_off(off):
    with CheckpointManager(CheckpointConfig(track_statistics=False, **off)) as manager:
        assert manager.cache is None
        assert manager.tracker is None
        assert isinstance(manager.engine, RecomputationEngine)


def test_without_a_config_there_is_neither_cache_nor_tracker():
    manager = CheckpointManager()

    assert manager.cache is None
    assert manager.tracker is None


def test_an_invalid_config_is_refused():
    with pytest.raises(ValueError, match="interval is 0"):
        CheckpointManager(CheckpointConfig(interval=0))


def test_an_offer_is_kept_as_the_strategy_says_and_the_rest_counts_as_saved():
    manager = CheckpointManager(CheckpointConfig(interval=3, exclude_layers=["layer3"]))

    kept = [manager.offer_checkpoint(f"layer{i}", bytes(10), i) for i in range(7)]

    assert kept == [True, False, False, False, False, False, True]
    assert manager.get_memory_stats().memory_savings == 50


def test_without_a_config_every_offer_is_kept():
    assert CheckpointManager().offer_checkpoint("a", b"x", 1)


def test_the_memory_aware_strategy_watches_the_managers_tracker():
    tracker = MemoryTracker()
    tracker.set_memory_limit(100)
    config = CheckpointConfig(strategy=CheckpointStrategy.MEMORY_AWARE)

    def kept_with(held):
        manager = CheckpointManager(config, tracker=tracker)
        manager.register_checkpoint("held", bytes(held))
        kept = [manager.offer_checkpoint(f"layer{i}", b"x", i) for i in range(7)]
        manager.close()
        return kept

    assert kept_with(10) == [True, False, False, True, False, False, True]
    assert kept_with(1000) == [True] * 7


def test_the_tracker_hears_of_every_allocation_and_deallocation():
    tracker = MemoryTracker()
    manager = CheckpointManager(tracker=tracker)
    manager.register_checkpoint("a", bytes(10))
    manager.register_checkpoint("empty", b"")
    manager.retrieve_or_recompute("b", lambda: bytes(30))

    assert tracker.current_memory_usage == 40
    assert tracker.active_allocation_count == 3
    manager.remove("a")
    assert tracker.current_memory_usage == 30
    manager.clear_checkpoints()

    assert tracker.current_memory_usage == 0
    assert tracker.get_stats().deallocation_count == 3


def test_a_listener_of_the_tracker_may_make_room_in_the_manager():
    """The limit is announced outside all locks, so the answer to it can be a remove."""
    tracker = MemoryTracker()
    tracker.set_memory_limit(25)
    manager = CheckpointManager(tracker=tracker)
    layers = []
    tracker.memory_limit_exceeded.subscribe(lambda event: manager.remove(layers.pop(0)))

    for index in range(5):
        layers.append(f"layer{index}")
        manager.register_checkpoint(f"layer{index}", bytes(10))

    assert manager.get_memory_stats().current_memory_used == 20
    assert manager.has_checkpoint("layer4")


def test_manager_and_tracker_agree_after_threads_registered_and_removed():
    tracker = MemoryTracker()
    manager = CheckpointManager(tracker=tracker)

    def churn(thread):
        for index in range(300):
            layer = f"layer{index % 7}"
            try:
                manager.register_checkpoint(layer, bytes(thread + 1))
            except ValueError:
                manager.remove(layer)

    in_threads(churn, range(8))

    stats = manager.get_memory_stats()
    assert tracker.current_memory_usage == stats.current_memory_used
    assert tracker.active_allocation_count == stats.checkpoint_count
    assert stats.allocation_count - stats.deallocation_count == stats.checkpoint_count


def test_with_a_disk_store_activations_leave_memory_and_come_back(tmp_path):
    with DiskStore(tmp_path) as store, CheckpointManager(store=store) as manager:
        tensor = torch.arange(100.0)
        watch = weakref.ref(tensor)
        manager.register_checkpoint("a", tensor)
        del tensor
        gc.collect()

        assert watch() is None
        assert torch.equal(manager.retrieve_or_recompute("a"), torch.arange(100.0))
        stats = manager.get_memory_stats()
        assert (stats.current_memory_used, stats.spilled_memory, stats.resident_memory) == (400, 400, 0)


@pytest.mark.parametrize("end", ["remove", "clear_checkpoints", "close"])
def test_spill_files_go_with_their_activations(tmp_path, end):
    store = DiskStore(tmp_path)
    manager = CheckpointManager(store=store)
    mine = np.ones(10)
    manager.register_checkpoint("a", mine)
    assert len(os.listdir(store.folder)) == 1

    getattr(manager, end)(*["a"] if end == "remove" else [])

    assert os.listdir(store.folder) == []
    assert mine.sum() == 10
    store.close()


def test_a_damaged_spill_file_is_an_error_not_an_activation(tmp_path):
    with DiskStore(tmp_path) as store, CheckpointManager(store=store) as manager:
        manager.register_checkpoint("a", bytes(100))
        (file,) = store.folder.iterdir()
        file.write_bytes(b"\x01" + bytes(99))

        with pytest.raises(SpillDamaged, match="does not read back as written"):
            manager.retrieve_or_recompute("a", lambda: b"never")


def test_parts_that_were_handed_in_stay_open():
    engine, cache, tracker = RecomputationEngine(), RecomputationCache(100), MemoryTracker()
    manager = CheckpointManager(engine=engine, cache=cache, tracker=tracker)
    engine.register_recompute_function("a", lambda: b"x")
    manager.retrieve_or_recompute("a")

    manager.close()

    assert engine.has_recompute_function("a")
    assert cache.get_stats().cached_items_count == 0


def test_parts_made_by_the_manager_are_closed_with_it():
    manager = CheckpointManager(CheckpointConfig(use_async_recomputation=True))
    engine, cache = manager.engine, manager.cache

    manager.close()

    with pytest.raises(ClosedError, match="async recomputation engine: it is closed"):
        engine.recompute_async("a")
    with pytest.raises(ClosedError, match="recomputation cache: it is closed"):
        cache.get("a")


def test_closing_after_the_owner_closed_the_cache_is_fine():
    cache = RecomputationCache(10)
    manager = CheckpointManager(cache=cache)
    cache.close()

    manager.close()
