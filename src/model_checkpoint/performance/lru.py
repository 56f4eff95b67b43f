"""LRU: a cache with bounds in items, bytes and seconds, whose entries never outlive what they were made from.

What expires is gone at the next call of any kind. Values are loaded, measured and copied outside the lock, so a slow
loader holds up nobody else.
"""

from __future__ import annotations

import copy
import heapq
import itertools
import sys
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from model_checkpoint import forks
from model_checkpoint.errors import OptionInvalid

_SPARE_DATES = 64  # how many dates of replaced entries may wait before they are cleared out


@dataclass(frozen=True, slots=True, kw_only=True)
class LRUStats:
    """What became of the calls and entries of a cache since it was made.

    Example:
        >>> LRUStats(hits=3, misses=1).hit_rate
        0.75
    """

    hits: int = 0
    misses: int = 0
    evicted: int = 0  # to keep a bound
    expired: int = 0
    invalidated: int = 0  # deleted by key or by tag
    refused: int = 0  # larger than the whole cache, or out of date before they were in it
    items: int = 0
    nbytes: int = 0  # measured only where there is a bound

    @property
    def hit_rate(self) -> float:
        """Which share of the questions was answered; 0.0 before the first."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0

    def __add__(self, other: LRUStats) -> LRUStats:
        names = self.__dataclass_fields__
        return LRUStats(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    value: Any
    nbytes: int
    expires: float | None
    tags: frozenset[Hashable]
    serial: int  # tells an entry from one that replaced it


class _Load:
    """A value on its way into the cache; stale once its key or a tag of it was invalidated meanwhile."""

    __slots__ = ("key", "stale", "tags")

    def __init__(self, key: Hashable, tags: frozenset[Hashable] | None) -> None:
        self.key, self.tags, self.stale = key, tags, False


class LRUCache:
    """Keeps the entries used last, within ``max_size`` items, ``max_bytes`` and ``default_ttl`` seconds.

    With ``isolate`` values are copied on the way in and out, so that nobody can change what another one gets.

    Example:
        >>> cache = LRUCache(max_size=2)
        >>> cache.set("a", 1), cache.set("b", 2), cache.get("a"), cache.set("c", 3)
        (True, True, 1, True)
        >>> cache.get("b", "evicted"), cache.stats().evicted
        ('evicted', 1)
    """

    def __init__(
        self,
        max_size: int = 1000,
        default_ttl: float | None = None,
        *,
        max_bytes: int | None = None,
        size_of: Callable[[Any], int] | None = None,
        isolate: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _require(max_size=max_size, default_ttl=default_ttl, max_bytes=max_bytes)
        self.max_size, self.max_bytes, self.default_ttl = max_size, max_bytes, default_ttl
        self._size_of, self._clock = size_of or deep_size, clock
        self._copied: Callable[[Any], Any] = copy.deepcopy if isolate else lambda value: value
        self._lock = forks.lock()
        self._serial = itertools.count()
        self._counts: Counter[str] = Counter()
        self._begin_anew()
        forks.in_child(self._begin_anew)  # another thread of the parent may have been in the middle of a change

    def _begin_anew(self) -> None:
        self._loads: set[_Load] = set()
        self._forget()

    def _forget(self) -> None:
        self._entries: OrderedDict[Hashable, _CacheEntry] = OrderedDict()
        self._tagged: defaultdict[Hashable, set[Hashable]] = defaultdict(set)
        self._dates: list[tuple[float, int, Hashable]] = []  # a heap, next to expire first
        self._nbytes = 0

    # using it --------------------------------------------------------------------------------------------------------

    def get(self, key: Hashable, default: Any = None) -> Any:
        """The value under ``key``, which thereby becomes the one used last; else ``default``."""
        entry = self._find(key)
        return default if entry is None else self._copied(entry.value)

    def _find(self, key: Hashable) -> _CacheEntry | None:
        with self._lock:
            self._expire()
            entry = self._entries.get(key)
            if entry is None:
                self._counts["misses"] += 1
            else:
                self._entries.move_to_end(key)
                self._counts["hits"] += 1
            return entry

    def set(self, key: Hashable, value: Any, ttl: float | None = None, *, tags: Iterable[Hashable] = ()) -> bool:
        """Keep ``value``; False, and the old one is gone, if it alone is larger than the cache may be.

        ``tags`` are what it was made from: invalidating one of them drops it.
        """
        _require(ttl=ttl)
        own, nbytes = self._copied(value), self._measure(value)
        with self._lock:
            return self._put(key, own, nbytes, ttl, frozenset(tags))

    def fetch(
        self,
        key: Hashable,
        load: Callable[[], Any],
        ttl: float | None = None,
        *,
        tags: Iterable[Hashable] | Callable[[Any], Iterable[Hashable]] = (),
    ) -> Any:
        """The value under ``key``, or what ``load`` returns, which is kept unless it was invalidated meanwhile.

        ``tags`` may be a function of the value, where only that tells. None is returned but not kept.

        Example:
            >>> cache = LRUCache()
            >>> cache.fetch("a", lambda: 1), cache.fetch("a", lambda: 2)
            (1, 1)
        """
        _require(ttl=ttl)
        entry = self._find(key)
        if entry is not None:
            return self._copied(entry.value)
        under_way = _Load(key, None if callable(tags) else frozenset(tags))
        with self._lock:
            self._loads.add(under_way)
        try:
            value = load()
            if value is None:
                return None
            known = frozenset(tags(value)) if callable(tags) else frozenset(tags)
            own, nbytes = self._copied(value), self._measure(value)
            with self._lock:
                if under_way.stale:
                    self._counts["refused"] += 1
                else:
                    self._put(key, own, nbytes, ttl, known)
            return value
        finally:
            with self._lock:
                self._loads.discard(under_way)

    def delete(self, key: Hashable) -> bool:
        """Drop one entry, and what is being loaded for it; whether there was one."""
        with self._lock:
            self._expire()
            self._make_stale(lambda load: load.key == key)
            found = key in self._entries
            if found:
                self._drop(key)
                self._counts["invalidated"] += 1
            return found

    def invalidate(self, tag: Hashable) -> int:
        """Drop every entry with that tag, and what is being loaded that may have it; how many there were.

        Example:
            >>> cache = LRUCache()
            >>> _ = cache.set("a", 1, tags=["run"]), cache.set("b", 2, tags=["run"]), cache.set("c", 3)
            >>> cache.invalidate("run"), len(cache)
            (2, 1)
        """
        with self._lock:
            self._expire()
            self._make_stale(lambda load: load.tags is None or tag in load.tags)
            keys = list(self._tagged.get(tag, ()))
            for key in keys:
                self._drop(key)
            self._counts["invalidated"] += len(keys)
            return len(keys)

    def clear(self) -> int:
        """Drop everything; how many entries there were."""
        with self._lock:
            self._expire()
            self._make_stale(lambda _: True)
            count = len(self._entries)
            self._forget()
            self._counts["invalidated"] += count
            return count

    def stats(self) -> LRUStats:
        """Counts since it was made, and what is in it now."""
        with self._lock:
            self._expire()
            return LRUStats(**self._counts, items=len(self._entries), nbytes=self._nbytes)

    def __len__(self) -> int:
        with self._lock:
            self._expire()
            return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            self._expire()
            return key in self._entries

    # inside, with the lock held --------------------------------------------------------------------------------------

    def _put(self, key: Hashable, value: Any, nbytes: int, ttl: float | None, tags: frozenset[Hashable]) -> bool:
        self._expire()
        self._make_stale(lambda load: load.key == key)  # what was set last stays
        if key in self._entries:
            self._drop(key)
        if self.max_bytes is not None and nbytes > self.max_bytes:
            self._counts["refused"] += 1
            return False
        seconds = self.default_ttl if ttl is None else ttl
        expires, serial = None if seconds is None else self._clock() + seconds, next(self._serial)
        self._entries[key] = _CacheEntry(value, nbytes, expires, tags, serial)
        self._nbytes += nbytes
        for tag in tags:
            self._tagged[tag].add(key)
        if expires is not None:
            heapq.heappush(self._dates, (expires, serial, key))
        while self._over():
            self._drop(next(iter(self._entries)))
            self._counts["evicted"] += 1
        return True

    def _over(self) -> bool:
        too_large = self.max_bytes is not None and self._nbytes > self.max_bytes
        return too_large or len(self._entries) > self.max_size

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key)
        self._nbytes -= entry.nbytes
        for tag in entry.tags:
            self._tagged[tag].discard(key)
            if not self._tagged[tag]:
                del self._tagged[tag]

    def _expire(self) -> None:
        now = self._clock()
        while self._dates and self._dates[0][0] <= now:
            _, serial, key = heapq.heappop(self._dates)
            if self._is_current(serial, key):
                self._drop(key)
                self._counts["expired"] += 1
        if len(self._dates) > 2 * len(self._entries) + _SPARE_DATES:
            self._dates = [date for date in self._dates if self._is_current(date[1], date[2])]
            heapq.heapify(self._dates)

    def _is_current(self, serial: int, key: Hashable) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.serial == serial

    def _make_stale(self, matches: Callable[[_Load], bool]) -> None:
        for load in self._loads:
            load.stale = load.stale or matches(load)

    def _measure(self, value: Any) -> int:
        return 0 if self.max_bytes is None else self._size_of(value)


def deep_size(value: Any) -> int:
    """About how many bytes of memory a value takes, with all that only it holds; arrays by their ``nbytes``.

    Example:
        >>> deep_size(bytes(1000)) > 1000, deep_size({"a": [bytes(1000)] * 2}) < 2000
        (True, True)
    """
    seen: set[int] = set()
    total, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType)):
            continue  # what it holds is not only its own
        seen.add(id(one))
        inner = getattr(one, "nbytes", None)
        total += max(inner if isinstance(inner, int) else 0, sys.getsizeof(one, 0))
        waiting.extend(_parts(one))
    return total


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, (str, bytes, bytearray, memoryview, int, float)):
        return ()
    if isinstance(value, Mapping):
        return itertools.chain(value.keys(), value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    slots = [getattr(value, name, None) for name in getattr(type(value), "__slots__", ()) if isinstance(name, str)]
    return itertools.chain(getattr(value, "__dict__", {}).values(), slots)


def _require(**bounds: float | None) -> None:
    for name, bound in bounds.items():
        if bound is not None and not (isinstance(bound, (int, float)) and bound > 0):
            raise OptionInvalid(f"cache: {name} is {bound!r}, expected a number above 0. Leave it out for no bound.")
