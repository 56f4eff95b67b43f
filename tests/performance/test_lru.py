"""A cache keeps its bounds in items, bytes and seconds, and never gives out what was invalidated."""

import os
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.ground.crowds import in_child, in_threads

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.performance import LRUCache
from model_checkpoint.performance.lru import deep_size


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class CacheAgainstModel(RuleBasedStateMachine):
    """Any order of calls leaves what a slow and simple model of the cache leaves."""

    keys, tags = st.sampled_from("abcdef"), st.sets(st.sampled_from("xyz"), max_size=2)

    def __init__(self):
        super().__init__()
        self.clock = Clock()
        self.cache = LRUCache(4, 10.0, max_bytes=100, size_of=lambda value: value, clock=self.clock)
        self.model = {}  # key: (value, expires, tags), least recently used first

    def drop_expired(self):
        self.model = {key: one for key, one in self.model.items() if one[1] > self.clock.now}

    @rule(key=keys, value=st.integers(1, 120), ttl=st.sampled_from([None, 1.0, 5.0, 50.0]), tags=tags)
    def put(self, key, value, ttl, tags):
        kept = self.cache.set(key, value, ttl, tags=tags)

        self.drop_expired()
        self.model.pop(key, None)
        assert kept == (value <= 100)
        if kept:
            self.model[key] = (value, self.clock.now + (ttl or 10.0), tags)
            while len(self.model) > 4 or sum(one[0] for one in self.model.values()) > 100:
                del self.model[next(iter(self.model))]

    @rule(key=keys)
    def look(self, key):
        found = self.cache.get(key)

        self.drop_expired()
        assert found == (self.model[key][0] if key in self.model else None)
        if key in self.model:
            self.model[key] = self.model.pop(key)

    @rule(key=keys)
    def delete(self, key):
        self.drop_expired()
        assert self.cache.delete(key) == (self.model.pop(key, None) is not None)

    @rule(tag=st.sampled_from("xyz"))
    def invalidate(self, tag):
        self.drop_expired()
        gone = [key for key, one in self.model.items() if tag in one[2]]
        assert self.cache.invalidate(tag) == len(gone)
        for key in gone:
            del self.model[key]

    @rule(seconds=st.floats(0.1, 20))
    def wait(self, seconds):
        self.clock.now += seconds

    @invariant()
    def holds_what_the_model_holds(self):
        self.drop_expired()
        stats = self.cache.stats()
        assert (stats.items, stats.nbytes) == (len(self.model), sum(one[0] for one in self.model.values()))
        assert all((key in self.cache) == (key in self.model) for key in "abcdef")


CacheAgainstModel.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestCacheAgainstModel = CacheAgainstModel.TestCase


def test_what_expired_is_gone_without_being_asked_for():
    clock = Clock()
    cache = LRUCache(default_ttl=1.0, clock=clock)
    cache.set("a", 1)

    clock.now += 1.0

    assert (len(cache), cache.stats().expired) == (0, 1)


def test_replacing_an_entry_does_not_let_the_old_date_drop_the_new_one():
    clock = Clock()
    cache = LRUCache(clock=clock)
    cache.set("a", "old", 1.0)
    cache.set("a", "new", 10.0)

    clock.now += 5.0

    assert cache.get("a") == "new"


def test_dates_of_replaced_entries_do_not_pile_up():
    cache = LRUCache(default_ttl=1000.0)

    for _ in range(10_000):
        cache.set("a", 1)

    assert len(cache._dates) < 200


def test_a_value_larger_than_the_cache_is_refused_and_costs_no_other_its_place():
    cache = LRUCache(max_bytes=1000)
    cache.set("small", b"x")

    assert not cache.set("huge", bytes(2000))
    assert ("small" in cache, "huge" in cache, cache.stats().refused) == (True, False, 1)


def test_a_value_that_was_invalidated_while_it_was_loaded_is_not_kept():
    """Or else the flags of before an update would be given out until they expire."""
    cache = LRUCache()

    def load():
        cache.delete("row")  # somebody updates the row after it was read
        return "old row"

    assert cache.fetch("row", load) == "old row"
    assert cache.fetch("row", lambda: "new row") == "new row"
    assert cache.get("row") == "new row"


@pytest.mark.parametrize("tags", [("run",), lambda value: ("run",)], ids=["known", "of the value"])
def test_a_value_whose_tag_was_invalidated_while_it_was_loaded_is_not_kept(tags):
    cache = LRUCache()

    def load():
        cache.invalidate("run")
        return "old row"

    cache.fetch("row", load, tags=tags)

    assert "row" not in cache


def test_a_value_set_while_an_older_one_was_loaded_stays():
    cache = LRUCache()

    def load():
        cache.set("row", "new")
        return "old"

    cache.fetch("row", load)

    assert cache.get("row") == "new"


def test_a_load_that_fails_leaves_nothing_behind():
    cache = LRUCache()

    with pytest.raises(ZeroDivisionError, match="division"):
        cache.fetch("a", lambda: 1 // 0)

    assert (cache.fetch("a", lambda: 2), cache._loads) == (2, set())


def test_what_is_isolated_cannot_be_changed_from_outside():
    cache, record = LRUCache(isolate=True), {"is_best": False}
    cache.set("c1", record)

    record["is_best"] = True
    cache.get("c1")["is_best"] = True
    loaded = cache.fetch("c2", lambda: {"tags": []})
    loaded["tags"].append("x")

    assert (cache.get("c1"), cache.get("c2")) == ({"is_best": False}, {"tags": []})


def test_many_threads_keep_the_bounds():
    cache = LRUCache(50, max_bytes=5000, size_of=lambda value: value)

    def hammer(seed):
        for n in range(2000):
            key = (seed * n) % 97
            cache.set(key, 1 + n % 200, tags=[n % 5])
            cache.get((seed + n) % 97)
            if n % 50 == 0:
                cache.invalidate(n % 5)

    in_threads(hammer, range(1, 5))

    stats = cache.stats()
    assert stats.items <= 50
    assert stats.nbytes <= 5000
    assert stats.hits + stats.misses == 8000
    assert cache.clear() == stats.items
    assert (cache.stats().nbytes, len(cache)) == (0, 0)


def test_a_forked_child_finds_an_empty_cache_that_works():
    cache = LRUCache()
    cache.set("a", 1)

    def work():
        assert cache.get("a") is None
        assert cache.set("b", 2)
        assert cache.get("b") == 2

    with cache._lock:  # as if another thread were in the middle of a change
        assert in_child(work) == 0

    assert cache.get("a") == 1


@pytest.mark.parametrize("bound", [{"max_size": 0}, {"default_ttl": 0}, {"max_bytes": -1}, {"max_size": "many"}])
def test_a_bound_that_is_none_is_refused(bound):
    with pytest.raises(OptionInvalid, match=f"{next(iter(bound))} is .* expected a number above 0"):
        LRUCache(**bound)


def test_sizes_count_what_an_object_holds_and_nothing_twice():
    @dataclass
    class Row:
        blob: bytes
        again: bytes

    blob = bytes(10_000)

    assert 10_000 < deep_size(Row(blob, blob)) < 12_000
    assert deep_size({"module": os, "class": dict}) < 2_000
    assert deep_size({"a": [blob], "b": (bytes(10_001),)}) > 20_000
