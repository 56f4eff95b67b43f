"""What a manager lets go of, counts and tells: clear, remove, peaks, savings, closing, listeners."""

import gc
import weakref

import numpy as np
import pytest
import torch

from model_checkpoint.recompute import (
    CheckpointManager,
    ClosedError,
    MemoryStats,
    MemoryStore,
)


def test_clear_removes_all_and_keeps_the_peak():
    manager = CheckpointManager()
    manager.register_checkpoint("a", bytes(10))
    manager.register_checkpoint("b", bytes(20))

    manager.clear_checkpoints()

    stats = manager.get_memory_stats()
    assert manager.checkpoint_count == 0
    assert not manager.has_checkpoint("a")
    assert stats.current_memory_used == 0
    assert stats.peak_memory_used == 30
    assert (stats.average_memory_per_checkpoint, stats.memory_savings) == (0, 0)
    assert (stats.total_memory_allocated, stats.total_memory_deallocated) == (30, 30)
    assert (stats.allocation_count, stats.deallocation_count) == (2, 2)


def test_a_manager_closed_while_it_stores_keeps_nothing_and_says_so():
    class ClosingStore(MemoryStore):
        """Closes the manager as another thread might."""

        def put(self, layer_id, activation):
            slot = super().put(layer_id, activation)
            manager.close()
            return slot

    store = ClosingStore()
    manager = CheckpointManager(store=store)
    assert manager.store is store

    with pytest.raises(ClosedError, match="it is closed"):
        manager.register_checkpoint("a", bytes(10))

    with pytest.raises(ClosedError, match="it is closed"):
        manager.has_checkpoint("a")


def test_a_layer_can_be_registered_again_after_clear():
    manager = CheckpointManager()
    manager.register_checkpoint("a", b"old")
    manager.clear_checkpoints()

    manager.register_checkpoint("a", b"new!")

    assert manager.retrieve_or_recompute("a") == b"new!"
    assert manager.get_access_count("a") == 1


@pytest.mark.parametrize("end", ["clear_checkpoints", "close", "dispose", "remove"])
def test_tensors_are_released_and_the_callers_own_live_on(end):
    manager = CheckpointManager()
    kept = torch.ones(4)
    manager.register_checkpoint("kept", kept)
    manager.register_checkpoint("dropped", torch.ones(4))
    watch_kept, watch_dropped = (weakref.ref(manager.retrieve_or_recompute(i)) for i in ("kept", "dropped"))

    for layer in ("kept", "dropped") if end == "remove" else ((),):
        getattr(manager, end)(*[layer] if layer else [])
    gc.collect()

    assert watch_dropped() is None
    assert watch_kept() is kept
    assert kept.sum() == 4


def test_remove_takes_one_layer_and_says_whether_it_was_there():
    manager = CheckpointManager()
    manager.register_checkpoint("a", bytes(10))
    manager.register_checkpoint("b", bytes(20))

    assert manager.remove("a") is True
    assert manager.remove("a") is False

    assert not manager.has_checkpoint("a")
    assert manager.get_memory_stats().current_memory_used == 20
    assert manager.get_memory_stats().peak_memory_used == 30


def test_the_peak_is_the_most_ever_held_and_can_be_reset():
    manager = CheckpointManager()
    manager.register_checkpoint("a", bytes(100))
    manager.remove("a")
    manager.register_checkpoint("b", bytes(30))

    assert manager.get_memory_stats().peak_memory_used == 100
    manager.reset_peak()

    assert manager.get_memory_stats().peak_memory_used == 30


def test_the_average_is_whole_bytes_per_checkpoint():
    manager = CheckpointManager()
    manager.register_checkpoint("a", bytes(10))
    manager.register_checkpoint("b", bytes(15))

    assert manager.get_memory_stats().average_memory_per_checkpoint == 12


def test_an_empty_manager_has_zero_of_everything():
    manager = CheckpointManager()

    stats = manager.get_memory_stats()

    assert stats == MemoryStats(timestamp=stats.timestamp)
    assert manager.checkpoint_count == 0
    manager.clear_checkpoints()


def test_stats_name_the_most_and_the_least_accessed_layers():
    manager = CheckpointManager()
    for count, layer in enumerate(["never", "once", "twice", "thrice"]):
        manager.register_checkpoint(layer, b"x")
        for _ in range(count):
            manager.retrieve_or_recompute(layer)

    stats = manager.get_memory_stats(ranked=2)

    assert stats.most_accessed == ("thrice", "twice")
    assert stats.least_accessed == ("never", "once")
    assert manager.get_memory_stats(ranked=0).most_accessed == ()


def test_savings_are_against_all_layers_seen_or_a_given_baseline():
    manager = CheckpointManager()
    manager.register_checkpoint("a", bytes(100))
    manager.register_checkpoint("b", bytes(50))
    manager.remove("a")

    assert manager.get_memory_stats().memory_savings == 100
    assert manager.get_memory_stats(baseline_bytes=1000).memory_savings == 950
    assert manager.get_memory_stats(baseline_bytes=10).memory_savings == -40


def test_a_layer_seen_twice_counts_once_in_the_baseline():
    manager = CheckpointManager()
    manager.register_checkpoint("a", bytes(100))
    manager.remove("a")
    manager.register_checkpoint("a", bytes(60))

    assert manager.get_memory_stats().baseline_memory == 60


@pytest.mark.parametrize("make", [np.zeros, torch.zeros], ids=["numpy", "torch"])
def test_aliases_count_in_full_and_the_shared_part_is_told(make):
    """Two ids for one tensor are two checkpoints of its size, in memory once."""
    manager = CheckpointManager()
    base = make(100)
    size = base.nbytes
    manager.register_checkpoint("whole", base)
    manager.register_checkpoint("again", base[:])
    manager.register_checkpoint("half", base[: len(base) // 2])

    stats = manager.get_memory_stats()
    assert stats.current_memory_used == 2 * size + size // 2
    assert stats.shared_memory == size + size // 2
    assert stats.resident_memory == size

    manager.remove("whole")
    manager.remove("again")
    assert manager.get_memory_stats().shared_memory == 0
    manager.remove("half")
    assert manager.get_memory_stats().resident_memory == 0


def test_disjoint_views_share_nothing():
    manager = CheckpointManager()
    base = torch.zeros(10)

    manager.register_checkpoint("left", base[:5])
    manager.register_checkpoint("right", base[5:])

    assert manager.get_memory_stats().shared_memory == 0


def test_closing_twice_is_harmless_and_every_use_afterwards_is_refused():
    manager = CheckpointManager()
    manager.register_checkpoint("a", b"x")

    manager.close()
    manager.close()
    manager.dispose()

    for call in (
        lambda: manager.register_checkpoint("b", b"x"),
        lambda: manager.offer_checkpoint("b", b"x", 0),
        lambda: manager.retrieve_or_recompute("a"),
        lambda: manager.retrieve_or_recompute("a", lambda: b"x"),
        lambda: manager.has_checkpoint("a"),
        lambda: manager.get_access_count("a"),
        lambda: manager.remove("a"),
        lambda: manager.clear_checkpoints(),
        lambda: manager.get_memory_stats(),
        lambda: manager.reset_peak(),
        lambda: manager.checkpoint_count,
    ):
        with pytest.raises(ClosedError, match="checkpoint manager: it is closed") as caught:
            call()
        assert isinstance(caught.value, RuntimeError)


def test_a_with_block_closes_the_manager():
    with CheckpointManager() as manager:
        manager.register_checkpoint("a", b"x")

    with pytest.raises(ClosedError, match="it is closed"):
        manager.has_checkpoint("a")


def test_listeners_hear_what_happens_and_may_call_back():
    manager = CheckpointManager()
    heard = []
    manager.checkpoint_registered.subscribe(lambda layer: heard.append(("registered", layer, manager.checkpoint_count)))
    manager.checkpoint_recomputed.subscribe(lambda layer: heard.append(("recomputed", layer)))
    manager.checkpoint_hit.subscribe(lambda layer: heard.append(("hit", layer)))
    manager.checkpoint_removed.subscribe(lambda layer: heard.append(("removed", layer, manager.has_checkpoint(layer))))

    manager.register_checkpoint("a", b"x")
    manager.retrieve_or_recompute("a")
    manager.retrieve_or_recompute("b", lambda: b"y")
    manager.remove("a")
    manager.clear_checkpoints()

    assert heard == [
        ("registered", "a", 1),
        ("hit", "a"),
        ("recomputed", "b"),
        ("registered", "b", 2),
        ("removed", "a", False),
        ("removed", "b", False),
    ]


def test_a_failing_listener_is_logged_and_stops_nobody(caplog):
    manager = CheckpointManager()
    heard = []
    manager.checkpoint_registered.subscribe(lambda layer: 1 / 0)
    stop = manager.checkpoint_registered.subscribe(heard.append)

    manager.register_checkpoint("a", b"x")
    stop()
    stop()
    manager.register_checkpoint("b", b"x")

    assert heard == ["a"]
    assert "checkpoint_registered: a listener failed" in caplog.text


def test_a_hundred_thousand_activations_are_registered_found_and_dropped():
    manager = CheckpointManager()
    tensor = np.zeros(16, np.uint8)

    for index in range(100_000):
        manager.register_checkpoint(f"layer{index}", tensor)

    stats = manager.get_memory_stats()
    assert manager.checkpoint_count == 100_000
    assert stats.current_memory_used == 1_600_000
    assert stats.average_memory_per_checkpoint == 16
    assert stats.resident_memory == 16
    assert manager.retrieve_or_recompute("layer99999") is tensor
    manager.clear_checkpoints()
    assert manager.checkpoint_count == 0
