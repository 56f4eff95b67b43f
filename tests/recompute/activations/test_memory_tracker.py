"""The books of allocations: totals, layers, events, limit."""

import dataclasses
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ground.crowds import in_threads

from model_checkpoint.recompute import LayerMemoryStats, MemoryStats, MemoryTracker


def holding(**sizes):
    tracker = MemoryTracker()
    for layer, size in sizes.items():
        tracker.record_allocation(layer, size)
    return tracker


def test_an_allocation_raises_current_total_and_peak():
    tracker = holding(a=100, b=50)

    assert tracker.current_memory_usage == 150
    assert tracker.peak_memory_usage == 150
    assert tracker.total_memory_allocated == 150
    assert tracker.active_allocation_count == 2


def test_a_deallocation_lowers_current_and_leaves_the_peak():
    tracker = holding(a=100, b=50)

    tracker.record_deallocation("a")

    assert tracker.current_memory_usage == 50
    assert tracker.peak_memory_usage == 150
    assert tracker.total_memory_deallocated == 100
    assert tracker.active_allocation_count == 1


def test_an_unknown_deallocation_changes_nothing():
    tracker = MemoryTracker()
    tracker.record_allocation("a", 1)
    tracker.record_deallocation("a")

    tracker.record_deallocation("a")
    tracker.record_deallocation("unknown")

    assert tracker.get_stats().deallocation_count == 1
    assert tracker.current_memory_usage == 0


@pytest.mark.parametrize("blank", ["", "  ", None], ids=repr)
def test_blank_ids_are_refused(blank):
    tracker = MemoryTracker()

    with pytest.raises(ValueError, match="expected a string that is not blank"):
        tracker.record_allocation(blank, 1)
    with pytest.raises(ValueError, match="expected a string that is not blank"):
        tracker.record_deallocation(blank)


@pytest.mark.parametrize("size", [0, -1, -(10**12)])
def test_a_size_that_is_not_positive_is_refused(size):
    tracker = MemoryTracker()

    with pytest.raises(ValueError, match=f"allocates {size} bytes, expected more than 0"):
        tracker.record_allocation("a", size)

    assert tracker.active_allocation_count == 0


def test_an_empty_tensor_may_be_recorded_where_it_is_meant():
    tracker = MemoryTracker()

    tracker.record_allocation("a", 0, allow_empty=True)

    assert tracker.active_allocation_count == 1
    with pytest.raises(ValueError, match="allocates -1 bytes"):
        tracker.record_allocation("a", -1, allow_empty=True)


def test_sizes_beyond_64_bits_are_counted():
    tracker = MemoryTracker()

    tracker.record_allocation("a", 2**70)
    tracker.record_allocation("b", 1)

    assert tracker.current_memory_usage == 2**70 + 1


def test_a_second_allocation_of_a_layer_adds_to_it_and_nothing_leaks():
    tracker = MemoryTracker()
    tracker.record_allocation("a", 1024)
    tracker.record_allocation("a", 2048)

    assert tracker.current_memory_usage == 3072
    tracker.record_deallocation("a")
    assert tracker.current_memory_usage == 1024
    assert tracker.get_layer_stats("a").is_currently_allocated
    tracker.record_deallocation("a")

    assert tracker.current_memory_usage == 0
    assert not tracker.get_layer_stats("a").is_currently_allocated


def test_reset_starts_counts_anew_and_keeps_what_is_live():
    tracker = holding(a=100, b=50)
    tracker.record_deallocation("b")

    tracker.reset_stats()

    stats = tracker.get_stats()
    assert (stats.current_memory_used, stats.peak_memory_used, stats.checkpoint_count) == (100, 100, 1)
    assert (stats.total_memory_allocated, stats.total_memory_deallocated) == (0, 0)
    assert (stats.allocation_count, stats.deallocation_count) == (0, 0)
    assert tracker.get_layer_stats("b") is None
    assert tracker.get_layer_stats("a").is_currently_allocated
    tracker.record_deallocation("a")
    assert tracker.get_stats().deallocation_count == 1
    assert tracker.current_memory_usage == 0


def test_stats_tell_everything_at_one_moment():
    tracker = MemoryTracker()
    before = datetime.now(UTC)
    tracker.record_allocation("a", 100)
    tracker.record_allocation("b", 60)
    tracker.record_deallocation("a")

    stats = tracker.get_stats()

    assert stats == MemoryStats(
        current_memory_used=60,
        peak_memory_used=160,
        checkpoint_count=1,
        baseline_memory=160,
        total_memory_allocated=160,
        total_memory_deallocated=100,
        allocation_count=2,
        deallocation_count=1,
        timestamp=stats.timestamp,
    )
    assert before <= stats.timestamp <= datetime.now(UTC)
    assert stats.memory_savings == 100


def test_savings_and_reduction_of_a_total():
    stats = MemoryStats(current_memory_used=300)

    assert stats.calculate_memory_savings(1000) == 700
    assert stats.calculate_memory_savings(100) == -200
    assert stats.calculate_memory_reduction_percentage(1000) == pytest.approx(0.7)
    assert stats.calculate_memory_reduction_percentage(0) == 0.0


def test_layer_stats_are_a_copy_with_everything_about_one_layer():
    tracker = MemoryTracker()
    tracker.record_allocation("a", 100)
    tracker.record_allocation("a", 31)
    tracker.record_deallocation("a")

    stats = tracker.get_layer_stats("a")
    tracker.record_allocation("a", 1000)

    assert stats == LayerMemoryStats(
        layer_id="a",
        allocation_count=2,
        deallocation_count=1,
        total_bytes_allocated=131,
        total_bytes_deallocated=31,
        max_allocation_size=100,
        last_allocated_at=stats.last_allocated_at,
        last_deallocated_at=stats.last_deallocated_at,
    )
    assert stats.average_allocation_size == 65
    assert stats.last_allocated_at <= stats.last_deallocated_at
    assert stats.last_allocated_at.tzinfo is UTC


@pytest.mark.parametrize("layer", ["unknown", "", "  ", None], ids=repr)
def test_layer_stats_of_nobody_are_none(layer):
    assert MemoryTracker().get_layer_stats(layer) is None


def test_a_layer_that_allocated_nothing_averages_zero():
    assert LayerMemoryStats(layer_id="a").average_allocation_size == 0


def listen(tracker):
    heard = []
    for name in ("memory_allocated", "memory_deallocated", "peak_memory_exceeded", "memory_limit_exceeded"):
        getattr(tracker, name).subscribe(lambda event, name=name: heard.append((name, event)))
    return heard


def test_each_event_fires_with_its_figures():
    tracker = MemoryTracker()
    tracker.set_memory_limit(120)
    heard = listen(tracker)

    tracker.record_allocation("a", 100)
    tracker.record_deallocation("a")
    tracker.record_allocation("b", 50)
    tracker.record_allocation("c", 80)

    assert [
        (name, event.layer_id, event.current_memory, getattr(event, "peak_memory", None)) for name, event in heard
    ] == [
        ("memory_allocated", "a", 100, 100),
        ("peak_memory_exceeded", "a", 100, 100),
        ("memory_deallocated", "a", 0, 100),
        ("memory_allocated", "b", 50, 100),
        ("memory_allocated", "c", 130, 130),
        ("peak_memory_exceeded", "c", 130, 130),
        ("memory_limit_exceeded", "c", 130, None),
    ]
    assert [event.size_bytes for name, event in heard if name.endswith("located")] == [100, 100, 50, 80]
    assert heard[-1][1].limit == 120
    assert all(event.timestamp.tzinfo is UTC for _, event in heard)


def test_a_layer_nobody_told_of_has_figures_of_nothing():
    stats = LayerMemoryStats(layer_id="a")

    assert [getattr(stats, one.name) for one in dataclasses.fields(stats)] == ["a", 0, 0, 0, 0, 0, None, None]
    assert (stats.average_allocation_size, stats.is_currently_allocated) == (0, False)
    assert set(dataclasses.astuple(MemoryStats())[:10]) == {0}


def test_a_peak_that_is_only_reached_again_is_no_new_one():
    tracker = MemoryTracker()
    tracker.record_allocation("a", 100)
    tracker.record_deallocation("a")
    heard = listen(tracker)

    tracker.record_allocation("b", 100)
    tracker.record_allocation("c", 0, allow_empty=True)

    assert [name for name, _ in heard] == ["memory_allocated", "memory_allocated"]


def test_no_event_fires_for_an_unknown_deallocation_or_below_the_limit():
    tracker = MemoryTracker()
    tracker.set_memory_limit(100)
    heard = listen(tracker)

    tracker.record_deallocation("a")
    tracker.record_allocation("a", 100)

    assert [name for name, _ in heard] == ["memory_allocated", "peak_memory_exceeded"]


def test_a_listener_may_ask_and_record():
    tracker = MemoryTracker()
    tracker.set_memory_limit(10)
    tracker.memory_limit_exceeded.subscribe(lambda event: tracker.record_deallocation(event.layer_id))

    tracker.record_allocation("a", 11)

    assert tracker.current_memory_usage == 0


def test_the_limit_is_none_until_set_and_can_be_lifted():
    tracker = MemoryTracker()
    assert tracker.memory_limit is None

    tracker.set_memory_limit(10)
    assert tracker.memory_limit == 10
    tracker.set_memory_limit(None)
    heard = listen(tracker)
    tracker.record_allocation("a", 1000)

    assert tracker.memory_limit is None
    assert "memory_limit_exceeded" not in [name for name, _ in heard]


@pytest.mark.parametrize("limit", [0, -5])
def test_a_limit_that_is_not_positive_is_refused(limit):
    with pytest.raises(ValueError, match=f"the limit is {limit} bytes"):
        MemoryTracker().set_memory_limit(limit)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.integers(1, 100))))
def test_the_books_always_balance(steps):
    tracker = MemoryTracker()
    live = {layer: [] for layer in "abc"}
    peak = 0

    for allocates, layer, size in steps:
        if allocates:
            tracker.record_allocation(layer, size)
            live[layer].append(size)
        else:
            tracker.record_deallocation(layer)
            live[layer][-1:] = []
        peak = max(peak, sum(map(sum, live.values())))

    stats = tracker.get_stats()
    assert stats.current_memory_used == sum(map(sum, live.values()))
    assert stats.current_memory_used == stats.total_memory_allocated - stats.total_memory_deallocated
    assert stats.peak_memory_used == peak
    assert stats.checkpoint_count == stats.allocation_count - stats.deallocation_count


def test_threads_that_allocate_and_deallocate_lose_nothing():
    tracker = MemoryTracker()
    heard = []
    tracker.memory_allocated.subscribe(heard.append)

    def churn(name):
        for size in range(1, 301):
            tracker.record_allocation(name, size)
            tracker.record_allocation("common", size)
            tracker.record_deallocation(name)

    in_threads(churn, [f"layer{t}" for t in range(16)])

    total = 16 * sum(range(1, 301))
    assert tracker.current_memory_usage == total
    assert tracker.total_memory_allocated == 2 * total
    assert tracker.get_layer_stats("common").allocation_count == 16 * 300
    assert len(heard) == 2 * 16 * 300
