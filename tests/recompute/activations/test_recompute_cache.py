"""The cache of recomputed activations, and what leaves it first."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ground.crowds import in_threads

from model_checkpoint.recompute import (
    CachePolicy,
    CacheStats,
    ClosedError,
    CostAwarePolicy,
    LFUPolicy,
    LRUPolicy,
    RecomputationCache,
)

POLICIES = [LRUPolicy, LFUPolicy, CostAwarePolicy]


def test_what_was_added_comes_back_as_the_same_object():
    cache = RecomputationCache(100)
    array = np.ones(3)

    assert cache.add("a", array) is True

    assert cache.get("a") is array
    assert cache.get("b") is None


def test_at_the_limit_the_least_recently_used_leaves():
    cache = RecomputationCache(30)
    for layer in "abc":
        cache.add(layer, bytes(10))
    cache.get("a")

    cache.add("d", bytes(10))

    assert [layer for layer in "abcd" if cache.contains(layer)] == ["a", "c", "d"]
    assert cache.get_stats().evictions == 1


def test_several_leave_for_a_large_one():
    cache = RecomputationCache(30)
    for layer in "abc":
        cache.add(layer, bytes(10))

    cache.add("d", bytes(15))

    assert [layer for layer in "abcd" if cache.contains(layer)] == ["c", "d"]
    assert cache.get_stats().current_size_bytes == 25


def test_exactly_the_limit_fits():
    cache = RecomputationCache(10)

    assert cache.add("a", bytes(10)) is True


def test_an_activation_larger_than_the_cache_is_not_cached_and_pushes_nothing_out():
    cache = RecomputationCache(30)
    cache.add("a", bytes(20))

    assert cache.add("big", bytes(31)) is False

    assert cache.contains("a")
    assert not cache.contains("big")


def test_adding_again_replaces():
    cache = RecomputationCache(30)
    cache.add("a", bytes(20))

    cache.add("a", b"new")

    assert cache.get("a") == b"new"
    assert cache.get_stats().current_size_bytes == 3
    assert cache.get_stats().cached_items_count == 1


def test_replacing_by_something_too_large_leaves_no_stale_value():
    cache = RecomputationCache(30)
    cache.add("a", b"old")

    assert cache.add("a", bytes(31)) is False
    assert cache.get("a") is None


def test_hits_misses_and_their_rate_are_counted_and_contains_is_not():
    cache = RecomputationCache(30)
    cache.add("a", b"x")

    for layer in "aaab":
        cache.get(layer)
        cache.contains(layer)

    stats = cache.get_stats()
    assert stats == CacheStats(
        cached_items_count=1, current_size_bytes=1, max_size_bytes=30, cache_hits=3, cache_misses=1
    )
    assert stats.hit_rate == 0.75


def test_the_hit_rate_of_no_lookups_is_zero():
    assert RecomputationCache(1).get_stats().hit_rate == 0.0


def test_clear_removes_all_and_starts_the_counts_anew():
    cache = RecomputationCache(30)
    cache.add("a", b"x")
    cache.get("a")

    cache.clear()

    assert cache.get_stats() == CacheStats(max_size_bytes=30)
    cache.add("a", b"y")
    assert cache.get("a") == b"y"


def test_clear_can_keep_the_counts():
    cache = RecomputationCache(30)
    cache.add("a", b"x")
    cache.get("a")

    cache.clear(keep_stats=True)

    assert cache.get_stats().cache_hits == 1


def test_remove_takes_one():
    cache = RecomputationCache(30)
    cache.add("a", b"x")

    assert cache.remove("a") is True
    assert cache.remove("a") is False
    assert cache.get_stats().current_size_bytes == 0


def test_empty_activations_are_cached():
    cache = RecomputationCache(1)

    assert cache.add("a", np.zeros((0, 3))) is True
    assert cache.get("a").shape == (0, 3)


@pytest.mark.parametrize("size", [0, -1])
def test_a_capacity_that_is_not_positive_is_refused(size):
    with pytest.raises(ValueError, match=f"its size is {size} bytes"):
        RecomputationCache(size)


@pytest.mark.parametrize("blank", ["", " ", None], ids=repr)
def test_blank_ids_are_refused_everywhere(blank):
    cache = RecomputationCache(10)

    for call in (
        lambda: cache.add(blank, b"x"),
        lambda: cache.get(blank),
        lambda: cache.contains(blank),
        lambda: cache.remove(blank),
    ):
        with pytest.raises(ValueError, match="not blank"):
            call()


def test_none_is_no_activation():
    with pytest.raises(ValueError, match="the activation of 'a' is None"):
        RecomputationCache(10).add("a", None)


@pytest.mark.parametrize("end", ["close", "dispose"])
def test_closing_twice_is_harmless_and_every_use_afterwards_is_refused(end):
    cache = RecomputationCache(10)
    getattr(cache, end)()
    getattr(cache, end)()

    for call in (
        lambda: cache.add("a", b"x"),
        lambda: cache.get("a"),
        lambda: cache.contains("a"),
        lambda: cache.remove("a"),
        lambda: cache.clear(),
        lambda: cache.get_stats(),
    ):
        with pytest.raises(ClosedError, match="recomputation cache: it is closed"):
            call()


@pytest.mark.parametrize("end", ["clear", "close"])
def test_activations_are_released_and_the_callers_own_live_on(end):
    cache = RecomputationCache(1000)
    mine, watch = np.ones(3), None
    cache.add("mine", mine)
    cache.add("other", np.ones(3))
    watch = weakref.ref(cache.get("other"))

    getattr(cache, end)()
    gc.collect()

    assert watch() is None
    assert mine.sum() == 3


def test_lfu_keeps_what_is_used_often():
    cache = RecomputationCache(30, LFUPolicy())
    for layer, uses in (("a", 3), ("b", 1), ("c", 2)):
        cache.add(layer, bytes(10))
        for _ in range(uses):
            cache.get(layer)

    cache.add("d", bytes(10))
    cache.add("e", bytes(10))

    assert [layer for layer in "abcde" if cache.contains(layer)] == ["a", "c", "e"]


def test_lfu_takes_the_older_of_equals():
    cache = RecomputationCache(20, LFUPolicy())
    cache.add("a", bytes(10))
    cache.add("b", bytes(10))

    cache.add("c", bytes(10))

    assert not cache.contains("a")


def test_cost_aware_keeps_what_is_dear_per_byte():
    cache = RecomputationCache(100, CostAwarePolicy())
    cache.add("dear", bytes(50), cost=100.0)
    cache.add("cheap", bytes(50), cost=1.0)

    cache.add("new", bytes(50), cost=1.0)

    assert cache.contains("dear")
    assert not cache.contains("cheap")


def test_cost_aware_lets_go_of_what_was_dear_once():
    """Without ageing one dear activation would stay for ever."""
    cache = RecomputationCache(20, CostAwarePolicy())
    cache.add("dear", bytes(10), cost=5.0)

    for index in range(100):
        cache.add(f"layer{index}", bytes(10), cost=1.0)

    assert not cache.contains("dear")


def test_cost_aware_values_use():
    cache = RecomputationCache(20, CostAwarePolicy())
    cache.add("used", bytes(10))
    cache.add("unused", bytes(10))
    cache.get("used")

    cache.add("new", bytes(10))

    assert cache.contains("used")
    assert not cache.contains("unused")


def test_a_policy_of_ones_own_decides():
    class NewestFirst(LRUPolicy):
        def victim(self):
            return next(reversed(self._order))

    cache = RecomputationCache(20, NewestFirst())
    cache.add("a", bytes(10))
    cache.add("b", bytes(10))

    cache.add("c", bytes(10))

    assert cache.contains("a")
    assert isinstance(NewestFirst(), CachePolicy)


def test_a_policy_that_names_a_stranger_is_told_so():
    class Broken(LRUPolicy):
        def victim(self):
            return "stranger"

    cache = RecomputationCache(10, Broken())
    cache.add("a", bytes(10))

    with pytest.raises(ValueError, match="policy Broken would evict 'stranger', which is not cached"):
        cache.add("b", bytes(10))


steps = st.lists(
    st.tuples(st.sampled_from(["add", "get", "remove"]), st.integers(0, 6), st.integers(0, 12)), max_size=60
)


@pytest.mark.parametrize("policy", POLICIES)
@given(steps)
def test_the_cache_never_exceeds_its_bytes_nor_forgets_what_it_says_it_has(policy, steps):
    cache = RecomputationCache(25, policy())
    latest = {}

    for action, layer, size in steps:
        name = f"layer{layer}"
        if action == "add":
            latest[name] = bytes(size)
            assert cache.add(name, latest[name], cost=1 + size % 3)
        elif action == "get":
            assert cache.get(name) in (None, latest.get(name))
        else:
            cache.remove(name)
        stats = cache.get_stats()
        held = [name for name in latest if cache.contains(name)]
        assert stats.current_size_bytes == sum(len(latest[name]) for name in held) <= 25
        assert stats.cached_items_count == len(held)


@given(steps)
def test_lru_evicts_in_the_order_of_last_use(steps):
    cache, model = RecomputationCache(25), {}

    for action, layer, size in steps:
        name = f"layer{layer}"
        if action == "add":
            cache.add(name, bytes(size))
            model.pop(name, None)
            while sum(model.values()) + size > 25:
                del model[next(iter(model))]
            model[name] = size
        elif action == "get":
            assert (cache.get(name) is not None) == (name in model)
            if name in model:
                model[name] = model.pop(name)
        else:
            assert cache.remove(name) == (model.pop(name, None) is not None)

    assert {f"layer{i}" for i in range(7) if cache.contains(f"layer{i}")} == set(model)


def test_the_heap_of_the_cost_aware_policy_stays_small():
    policy = CostAwarePolicy()
    cache = RecomputationCache(100, policy)

    for index in range(5000):
        cache.add(f"layer{index % 3}", bytes(10), cost=index)
        cache.get(f"layer{index % 3}")

    assert len(policy._heap) < 100


@pytest.mark.parametrize("policy", POLICIES)
def test_threads_lose_no_lookup(policy):
    cache = RecomputationCache(200, policy())

    def churn(thread):
        for index in range(300):
            cache.add(f"layer{(index * thread) % 31}", bytes(10))
            cache.get(f"layer{index % 31}")

    in_threads(churn, range(16))

    stats = cache.get_stats()
    assert stats.cache_hits + stats.cache_misses == 16 * 300
    assert stats.current_size_bytes == 10 * stats.cached_items_count <= 200
