"""Strategies: which activations to keep.

A strategy answers one question per layer and forward pass. Those that learn do so under a lock of their own.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from model_checkpoint import forks
from model_checkpoint.recompute.activations.activation import check_activation, check_layer_id, size_of
from model_checkpoint.recompute.activations.config import CheckpointConfig, CheckpointStrategy
from model_checkpoint.recompute.activations.tracker import MemoryTracker
from model_checkpoint.recompute.errors import SettingInvalid


@runtime_checkable
class CheckpointStrategyProtocol(Protocol):
    """Decides, layer by layer, whether an activation is kept."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def should_checkpoint(self, layer_id: str, activation: Any, layer_index: int) -> bool:
        """Whether to keep the activation of this layer."""
        ...

    def reset(self) -> None:
        """Forget what was learned."""
        ...


class CheckpointStrategyBase(ABC):
    """What all strategies here share: checks, exclusions, a name.

    Example:
        >>> class Odd(CheckpointStrategyBase):
        ...     name = "odd"
        ...     def _keep(self, layer_id, activation, layer_index):
        ...         return layer_index % 2 == 1
        >>> Odd().should_checkpoint("layer", b"x", 3)
        True
    """

    def __init__(self, *, exclude: Iterable[str] = ()) -> None:
        self._excluded = frozenset(exclude)

    @property
    @abstractmethod
    def name(self) -> str:
        """What people call it."""

    def should_checkpoint(self, layer_id: str, activation: Any, layer_index: int) -> bool:
        """Whether to keep the activation of this layer; never for an excluded one."""
        check_layer_id(layer_id, where=self.name)
        check_activation(activation, where=self.name, layer_id=layer_id)
        if layer_index < 0:
            raise SettingInvalid(f"{self.name}: {layer_id!r} has index {layer_index}, expected 0 or more.")
        return layer_id not in self._excluded and self._keep(layer_id, activation, layer_index)

    @abstractmethod
    def _keep(self, layer_id: str, activation: Any, layer_index: int) -> bool: ...

    def reset(self) -> None:  # noqa: B027 - most strategies learn nothing, so nothing is right
        """Forget what was learned."""


class IntervalStrategy(CheckpointStrategyBase):
    """Keeps every n-th layer.

    Example:
        >>> strategy = IntervalStrategy(2)
        >>> [strategy.should_checkpoint("layer", b"x", index) for index in range(3)]
        [True, False, True]
    """

    name = "interval"

    def __init__(self, interval: int = 2, *, exclude: Iterable[str] = ()) -> None:
        super().__init__(exclude=exclude)
        if interval < 1:
            raise SettingInvalid(f"interval strategy: the interval is {interval}, expected 1 or more.")
        self._interval = interval

    def _keep(self, layer_id: str, activation: Any, layer_index: int) -> bool:
        return layer_index % self._interval == 0


class SelectiveStrategy(CheckpointStrategyBase):
    """Keeps the layers it was told.

    Example:
        >>> SelectiveStrategy(["head"]).should_checkpoint("head", b"x", 7)
        True
    """

    name = "selective"

    def __init__(self, layers: Iterable[str], *, exclude: Iterable[str] = ()) -> None:
        super().__init__(exclude=exclude)
        self._layers = frozenset(layers)

    def _keep(self, layer_id: str, activation: Any, layer_index: int) -> bool:
        return layer_id in self._layers


class SizeBasedStrategy(CheckpointStrategyBase):
    """Keeps activations of at least so many bytes.

    Example:
        >>> SizeBasedStrategy(4).should_checkpoint("layer", b"abc", 0)
        False
    """

    name = "size_based"

    def __init__(self, min_size_bytes: int = 1 << 20, *, exclude: Iterable[str] = ()) -> None:
        super().__init__(exclude=exclude)
        if min_size_bytes < 1:
            raise SettingInvalid(f"size based strategy: the smallest size is {min_size_bytes}, expected 1 or more.")
        self._min_size = min_size_bytes

    def _keep(self, layer_id: str, activation: Any, layer_index: int) -> bool:
        return size_of(activation) >= self._min_size


class MemoryAwareStrategy(CheckpointStrategyBase):
    """Keeps every n-th layer, where n follows memory use.

    Above the limit n shrinks by one, so that fewer layers run again between two checkpoints; below four fifths of the
    limit it grows by one. It stays within 1 and 10 and moves at most once in ten seconds, so that a move can show its
    effect before the next.

    Example:
        >>> strategy = MemoryAwareStrategy(lambda: 90, lambda: 100)
        >>> strategy.should_checkpoint("layer", b"x", 1), strategy.current_interval
        (False, 2)
    """

    name = "memory_aware"
    start, narrowest, widest, settle_seconds = 2, 1, 10, 10.0

    def __init__(
        self,
        usage: Callable[[], int],
        limit: Callable[[], int],
        *,
        exclude: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(exclude=exclude)
        self._usage, self._limit, self._clock = usage, limit, clock
        self._lock = forks.lock()
        self._interval, self._moved_at = self.start, -float("inf")

    @property
    def current_interval(self) -> int:
        """The interval in force."""
        return self._interval

    def _keep(self, layer_id: str, activation: Any, layer_index: int) -> bool:
        with self._lock:
            self._adjust()
            return layer_index % self._interval == 0

    def _adjust(self) -> None:
        if self._clock() - self._moved_at < self.settle_seconds:
            return
        usage, limit = self._usage(), self._limit()
        step = -1 if usage > limit else 1 if usage < 0.8 * limit else 0
        moved = min(self.widest, max(self.narrowest, self._interval + step))
        if moved != self._interval:
            self._interval, self._moved_at = moved, self._clock()

    def reset(self) -> None:
        """Go back to the interval of the start."""
        with self._lock:
            self._interval, self._moved_at = self.start, -float("inf")


class SmartStrategy(CheckpointStrategyBase):
    """Keeps what is large, rarely seen or late in the network.

    The first ten answers are yes while sizes are learned; then a layer is kept if it is larger than one and a half
    times the mean, was seen fewer than two times before, or lies in the last 30 % of the layers seen.

    Example:
        >>> SmartStrategy().should_checkpoint("layer", b"x", 0)
        True
    """

    name = "smart"
    warm_up, large, rare, late = 10, 1.5, 2, 0.7

    def __init__(self, *, exclude: Iterable[str] = ()) -> None:
        super().__init__(exclude=exclude)
        self._lock = forks.lock()
        self.reset()

    def reset(self) -> None:
        """Forget sizes and layers."""
        with self._lock:
            self._seen: dict[str, int] = {}
            self._answers = self._bytes = self._last_index = 0

    def _keep(self, layer_id: str, activation: Any, layer_index: int) -> bool:
        size = size_of(activation)
        with self._lock:
            times = self._seen.get(layer_id, 0)
            self._seen[layer_id] = times + 1
            self._answers += 1
            self._bytes += size
            self._last_index = max(self._last_index, layer_index)
            return (
                self._answers <= self.warm_up
                or times < self.rare
                or size > self.large * self._bytes / self._answers
                or layer_index >= self.late * (self._last_index + 1)
            )


def create_interval(interval: int = 2, *, exclude: Iterable[str] = ()) -> IntervalStrategy:
    """Make the strategy that keeps every n-th layer.

    Example:
        >>> create_interval(4).name
        'interval'
    """
    return IntervalStrategy(interval, exclude=exclude)


def create_selective(layers: Iterable[str], *, exclude: Iterable[str] = ()) -> SelectiveStrategy:
    """Make the strategy that keeps the layers it is told.

    Example:
        >>> create_selective(["head"]).name
        'selective'
    """
    return SelectiveStrategy(layers, exclude=exclude)


def create_size_based(min_size_bytes: int = 1 << 20, *, exclude: Iterable[str] = ()) -> SizeBasedStrategy:
    """Make the strategy that keeps large activations.

    Example:
        >>> create_size_based(1 << 16).name
        'size_based'
    """
    return SizeBasedStrategy(min_size_bytes, exclude=exclude)


def create_memory_aware(
    max_memory_percentage: float = 0.8,
    tracker: MemoryTracker | None = None,
    *,
    total_memory: int | None = None,
    exclude: Iterable[str] = (),
) -> MemoryAwareStrategy:
    """Make the strategy that follows memory use.

    It watches ``tracker`` if there is one, else the memory of this process; its limit is the tracker's, if set, else
    the given part of ``total_memory`` (by default what the machine has).

    Example:
        >>> create_memory_aware(0.5).current_interval
        2
    """
    if not 0 < max_memory_percentage <= 1:
        raise SettingInvalid(
            f"memory aware strategy: the part of memory is {max_memory_percentage}, expected above 0 and at most 1."
        )
    share = int((total_memory or machine_memory()) * max_memory_percentage)
    if tracker is None:
        return MemoryAwareStrategy(process_memory, lambda: share, exclude=exclude)
    return MemoryAwareStrategy(
        lambda: tracker.current_memory_usage, lambda: tracker.memory_limit or share, exclude=exclude
    )


def create_smart(*, exclude: Iterable[str] = ()) -> SmartStrategy:
    """Make the strategy that keeps what is large, rare or late.

    Example:
        >>> create_smart().name
        'smart'
    """
    return SmartStrategy(exclude=exclude)


def create_strategy(
    config: CheckpointConfig, tracker: MemoryTracker | None = None, *, total_memory: int | None = None
) -> CheckpointStrategyBase:
    """Make the strategy a config names; tracker and total memory matter to MEMORY_AWARE alone.

    Raises:
        SettingInvalid: the config does not hold (a ``ValueError``).

    Example:
        >>> create_strategy(CheckpointConfig.aggressive()).name
        'interval'
    """
    config.validate()
    excluded = config.exclude_layers
    match config.strategy:
        case CheckpointStrategy.INTERVAL:
            return create_interval(config.interval, exclude=excluded)
        case CheckpointStrategy.SELECTIVE:
            return create_selective(config.checkpoint_layers, exclude=excluded)
        case CheckpointStrategy.SIZE_BASED:
            return create_size_based(config.min_activation_size_bytes, exclude=excluded)
        case CheckpointStrategy.MEMORY_AWARE:
            return create_memory_aware(
                config.max_memory_percentage, tracker, total_memory=total_memory, exclude=excluded
            )
        case CheckpointStrategy.SMART:
            return create_smart(exclude=excluded)


def machine_memory() -> int:
    """Bytes of memory this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def process_memory() -> int:
    """Bytes of memory this process occupies now; where the system does not say, the most it ever did."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource  # not on every platform, and needed only where /proc is missing

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
