"""Operation monitor: how long operations take, as percentiles over the whole run, in memory that does not grow.

Durations are counted in buckets whose bounds grow by a constant factor, so that any percentile is known within one per
cent of itself, whatever the number of measurements; monitors of several processes can be added up.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from model_checkpoint import forks
from model_checkpoint.errors import OptionInvalid

ACCURACY = 0.01  # how far a percentile may be from the true one, as a share of it
_GROWTH = (1 + ACCURACY) / (1 - ACCURACY)
_LOG = math.log(_GROWTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationStats:
    """What is known of one operation; times in seconds, exact but for the percentiles.

    Example:
        >>> stats = OperationStats.of([0.1, 0.2, 0.3, 10.0])
        >>> stats.count, round(stats.mean, 2), round(stats.percentile(50), 2), stats.percentile(100)
        (4, 2.65, 0.2, 10.0)
    """

    count: int = 0
    failures: int = 0
    total: float = 0.0
    least: float = 0.0
    most: float = 0.0
    nbytes: int = 0
    buckets: Mapping[int | None, int] = field(default_factory=dict, hash=False)

    @staticmethod
    def of(durations: Iterable[float]) -> OperationStats:
        """Sum up some durations."""
        tally = _OperationTally()
        for seconds in durations:
            tally.add(seconds)
        return tally.snapshot()

    @property
    def mean(self) -> float:
        """Seconds on average; 0.0 before the first."""
        return self.total / self.count if self.count else 0.0

    @property
    def rate(self) -> float:
        """Bytes per second of the operation's own time; 0.0 where none were counted."""
        return self.nbytes / self.total if self.total > 0 else 0.0

    def percentile(self, percent: float) -> float:
        """The duration that ``percent`` of all do not exceed, within one per cent; 0.0 before the first."""
        if not 0 <= percent <= 100:
            raise OptionInvalid(f"percentile: got {percent!r}, expected a number from 0 to 100.")
        if not self.count:
            return 0.0
        rank, passed = max(1, math.ceil(self.count * percent / 100)), 0
        for bucket in sorted(self.buckets, key=lambda one: -math.inf if one is None else one):
            passed += self.buckets[bucket]
            if passed >= rank:
                return min(max(_middle(bucket), self.least), self.most)
        return self.most

    def percentiles(self) -> dict[str, float]:
        """The usual ones, by name."""
        return {f"p{percent}": self.percentile(percent) for percent in (50, 90, 95, 99)}


def _bucket(seconds: float) -> int | None:
    return None if seconds <= 0 else math.ceil(math.log(seconds) / _LOG)


def _middle(bucket: int | None) -> float:
    """The duration that no other in the bucket is further from than the accuracy allows."""
    return 0.0 if bucket is None else 2 * math.exp(bucket * _LOG) / (_GROWTH + 1)


class _OperationTally:
    """The counts of one operation while it is being measured."""

    def __init__(self) -> None:
        self.count = self.failures = self.nbytes = 0
        self.total, self.least, self.most = 0.0, math.inf, 0.0
        self.buckets: Counter[int | None] = Counter()

    def add(self, seconds: float, nbytes: int = 0, failed: bool = False) -> None:
        self.count += 1
        self.failures += failed
        self.nbytes += nbytes
        self.total += seconds
        self.least, self.most = min(self.least, seconds), max(self.most, seconds)
        self.buckets[_bucket(seconds)] += 1

    def absorb(self, other: OperationStats) -> None:
        if other.count:
            self.count += other.count
            self.failures += other.failures
            self.nbytes += other.nbytes
            self.total += other.total
            self.least, self.most = min(self.least, other.least), max(self.most, other.most)
            self.buckets.update(other.buckets)

    def snapshot(self) -> OperationStats:
        return OperationStats(
            count=self.count,
            failures=self.failures,
            total=self.total,
            least=self.least if self.count else 0.0,
            most=self.most,
            nbytes=self.nbytes,
            buckets=dict(self.buckets),
        )


class OperationMonitor:
    """Measures operations by name, from any thread.

    Example:
        >>> monitor = OperationMonitor()
        >>> with monitor.measure("save", nbytes=100):
        ...     pass
        >>> monitor.stats("save").count, monitor.stats("load").count
        (1, 0)
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = forks.lock()
        self._tallies: defaultdict[str, _OperationTally] = defaultdict(_OperationTally)

    @contextmanager
    def measure(self, operation: str, *, nbytes: int = 0) -> Iterator[None]:
        """Measure the block; one that raises counts as a failure too."""
        start, failed = self._clock(), True
        try:
            yield
            failed = False
        finally:
            self.record(operation, max(0.0, self._clock() - start), nbytes=nbytes, failed=failed)

    def record(self, operation: str, seconds: float, *, nbytes: int = 0, failed: bool = False) -> None:
        """Count one operation that took ``seconds``."""
        if not (seconds >= 0 and math.isfinite(seconds)):
            raise OptionInvalid(f"{operation}: took {seconds!r} seconds, expected a finite number from 0 on.")
        with self._lock:
            self._tallies[operation].add(seconds, nbytes, failed)

    def stats(self, operation: str) -> OperationStats:
        """What is known of one operation; all zero if it never ran."""
        with self._lock:
            known = self._tallies.get(operation)
            return OperationStats() if known is None else known.snapshot()

    def all_stats(self) -> dict[str, OperationStats]:
        """What is known of each operation, by name."""
        with self._lock:
            return {name: tally.snapshot() for name, tally in sorted(self._tallies.items())}

    def merge(self, other: Mapping[str, OperationStats]) -> None:
        """Add what another monitor, perhaps of another process, knows."""
        with self._lock:
            for name, stats in other.items():
                self._tallies[name].absorb(stats)

    def reset(self) -> None:
        """Forget everything measured."""
        with self._lock:
            self._tallies.clear()
