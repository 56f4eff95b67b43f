"""Percentiles are within one per cent of the true ones, in memory that does not grow."""

import math
import pickle
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.performance import OperationMonitor, OperationStats

durations = st.lists(st.floats(1e-7, 1e5), min_size=1, max_size=60)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values=durations, percent=st.floats(0, 100))
def test_any_percentile_is_within_one_per_cent(values, percent):
    true = sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]

    found = OperationStats.of(values).percentile(percent)

    assert abs(found - true) <= 0.0101 * true


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(first=durations, second=durations)
def test_two_monitors_add_up_to_one(first, second):
    left, right = OperationMonitor(), OperationMonitor()
    for value in first:
        left.record("save", value)
    for value in second:
        right.record("save", value, nbytes=10, failed=True)

    left.merge(pickle.loads(pickle.dumps(right.all_stats())))

    whole = OperationStats.of([*first, *second])
    merged = left.stats("save")
    assert (merged.buckets, merged.count, merged.least, merged.most) == (
        whole.buckets,
        whole.count,
        whole.least,
        whole.most,
    )
    assert (merged.failures, merged.nbytes) == (len(second), 10 * len(second))


def test_memory_does_not_grow_with_the_number_of_measurements():
    monitor = OperationMonitor()
    for n in range(100_000):
        monitor.record("step", 0.001 + (n % 1000) * 1e-6)

    assert len(monitor.stats("step").buckets) < 60


def test_a_block_that_raises_is_measured_and_counted_as_failed():
    ticks = iter([1.0, 3.5])
    monitor = OperationMonitor(clock=lambda: next(ticks))

    with pytest.raises(KeyError, match="gone"), monitor.measure("load"):
        raise KeyError("gone")

    stats = monitor.stats("load")
    assert (stats.count, stats.failures, stats.total) == (1, 1, 2.5)


def test_a_snapshot_does_not_change_any_more():
    monitor = OperationMonitor()
    monitor.record("a", 1.0)
    before = monitor.stats("a")

    monitor.record("a", 2.0)

    assert (before.count, sum(before.buckets.values())) == (1, 1)
    assert monitor.stats("a").percentiles().keys() == {"p50", "p90", "p95", "p99"}


def test_threads_lose_no_measurement():
    monitor = OperationMonitor()
    work = [threading.Thread(target=lambda: [monitor.record("a", 0.5) for _ in range(5000)]) for _ in range(4)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()

    assert monitor.stats("a").count == 20_000


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_what_is_no_duration_is_refused(seconds):
    with pytest.raises(OptionInvalid, match=r"a: took .* expected a finite number"):
        OperationMonitor().record("a", seconds)


def test_nothing_measured_is_all_zero():
    stats = OperationMonitor().stats("never")

    assert (stats.percentile(99), stats.mean, stats.rate, stats.least) == (0.0, 0.0, 0.0, 0.0)
    with pytest.raises(OptionInvalid, match="expected a number from 0 to 100"):
        stats.percentile(101)
