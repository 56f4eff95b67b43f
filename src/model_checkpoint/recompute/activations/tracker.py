"""Memory tracker: who allocated how much, the peak, and a limit that raises its voice.

All figures are running totals: no call walks over the layers. Listeners run outside the lock, so they may call back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from model_checkpoint import forks
from model_checkpoint.recompute.activations.activation import check_layer_id
from model_checkpoint.recompute.activations.memory_stats import (
    LayerMemoryStats,
    MemoryEvent,
    MemoryLimitEvent,
    MemoryStats,
    timestamp,
)
from model_checkpoint.recompute.activations.signals import Signal
from model_checkpoint.recompute.errors import SettingInvalid

_WHERE = "memory tracker"


@dataclass(slots=True)
class _Layer:
    """One layer's books; ``live`` holds the sizes not given back yet, newest last."""

    live: list[int] = field(default_factory=list)
    allocations: int = 0
    deallocations: int = 0
    allocated: int = 0
    deallocated: int = 0
    largest: int = 0
    last_allocated: datetime | None = None
    last_deallocated: datetime | None = None


class MemoryTracker:
    """Books of allocations by layer, safe from any thread.

    A layer may hold several allocations at once; each deallocation gives the newest one back, so nothing that was
    recorded can get lost.

    Example:
        >>> tracker = MemoryTracker()
        >>> tracker.record_allocation("block1", 4096)
        >>> tracker.record_deallocation("block1")
        >>> tracker.current_memory_usage, tracker.peak_memory_usage
        (0, 4096)
    """

    def __init__(self) -> None:
        self.memory_allocated: Signal[MemoryEvent] = Signal("memory_allocated")
        self.memory_deallocated: Signal[MemoryEvent] = Signal("memory_deallocated")
        self.peak_memory_exceeded: Signal[MemoryEvent] = Signal("peak_memory_exceeded")
        self.memory_limit_exceeded: Signal[MemoryLimitEvent] = Signal("memory_limit_exceeded")
        self._lock = forks.lock()
        self._layers: dict[str, _Layer] = {}
        self._limit: int | None = None
        self._current = self._peak = self._live_count = 0
        self._allocated = self._deallocated = self._allocations = self._deallocations = 0

    def record_allocation(self, layer_id: str, size_bytes: int, *, allow_empty: bool = False) -> None:
        """Add ``size_bytes`` to what ``layer_id`` holds.

        A size of 0 is refused unless ``allow_empty``: it is nearly always a size computed wrongly, but zero-element
        tensors do exist.
        """
        check_layer_id(layer_id, where=_WHERE)
        if size_bytes < 0 or (size_bytes == 0 and not allow_empty):
            raise SettingInvalid(f"{_WHERE}: {layer_id!r} allocates {size_bytes} bytes, expected more than 0.")
        for announce in self.book_allocation(layer_id, size_bytes):
            announce()

    def book_allocation(self, layer_id: str, size_bytes: int) -> list[Callable[[], None]]:
        """Record a checked allocation; the calls returned tell the listeners, once the caller holds no lock."""
        with self._lock:
            self._add(layer_id, size_bytes)
            is_peak = self._current > self._peak
            self._peak = max(self._peak, self._current)
            event, limit = self._event(layer_id, size_bytes), self._limit
        news = [partial(self.memory_allocated.emit, event)]
        if is_peak:
            news.append(partial(self.peak_memory_exceeded.emit, event))
        if limit is not None and event.current_memory > limit:
            excess = MemoryLimitEvent(layer_id=layer_id, current_memory=event.current_memory, limit=limit)
            return [*news, partial(self.memory_limit_exceeded.emit, excess)]
        return [*news]

    def _add(self, layer_id: str, size: int) -> None:
        layer = self._layers.setdefault(layer_id, _Layer())
        layer.live.append(size)
        layer.allocations += 1
        layer.allocated += size
        layer.largest = max(layer.largest, size)
        layer.last_allocated = timestamp()
        self._live_count += 1
        self._allocations += 1
        self._allocated += size
        self._current += size

    def _event(self, layer_id: str, size: int) -> MemoryEvent:
        return MemoryEvent(layer_id=layer_id, size_bytes=size, current_memory=self._current, peak_memory=self._peak)

    def record_deallocation(self, layer_id: str) -> None:
        """Give back the newest allocation of ``layer_id``; nothing happens when it holds none."""
        check_layer_id(layer_id, where=_WHERE)
        for announce in self.book_deallocation(layer_id):
            announce()

    def book_deallocation(self, layer_id: str) -> list[Callable[[], None]]:
        """Record a deallocation; the calls returned tell the listeners, once the caller holds no lock."""
        with self._lock:
            layer = self._layers.get(layer_id)
            if layer is None or not layer.live:
                return []
            size = layer.live.pop()
            layer.deallocations += 1
            layer.deallocated += size
            layer.last_deallocated = timestamp()
            self._live_count -= 1
            self._deallocations += 1
            self._deallocated += size
            self._current -= size
            event = self._event(layer_id, size)
        return [partial(self.memory_deallocated.emit, event)]

    @property
    def current_memory_usage(self) -> int:
        """Bytes allocated and not given back."""
        return self._current

    @property
    def peak_memory_usage(self) -> int:
        """The most bytes ever in use at once, since the last reset."""
        return self._peak

    @property
    def total_memory_allocated(self) -> int:
        """Bytes of all allocations since the last reset."""
        return self._allocated

    @property
    def total_memory_deallocated(self) -> int:
        """Bytes of all deallocations since the last reset."""
        return self._deallocated

    @property
    def active_allocation_count(self) -> int:
        """Allocations not given back."""
        return self._live_count

    @property
    def memory_limit(self) -> int | None:
        """Bytes above which ``memory_limit_exceeded`` is raised; None means no limit."""
        return self._limit

    def set_memory_limit(self, limit_bytes: int | None) -> None:
        """Set the limit, or lift it with None."""
        if limit_bytes is not None and limit_bytes <= 0:
            raise SettingInvalid(
                f"{_WHERE}: the limit is {limit_bytes} bytes, expected more than 0, or None to lift it."
            )
        self._limit = limit_bytes

    def reset_stats(self) -> None:
        """Start counting anew: totals and counts 0, peak = current; what is live stays.

        Layers that hold nothing are forgotten; the others start from what they hold.
        """
        with self._lock:
            self._allocated = self._deallocated = self._allocations = self._deallocations = 0
            self._peak = self._current
            self._layers = {name: _restarted(layer) for name, layer in self._layers.items() if layer.live}

    def get_stats(self) -> MemoryStats:
        """The figures of this moment; the baseline is everything allocated and never given back."""
        with self._lock:
            return MemoryStats(
                current_memory_used=self._current,
                peak_memory_used=self._peak,
                checkpoint_count=self._live_count,
                baseline_memory=self._current + self._deallocated,
                total_memory_allocated=self._allocated,
                total_memory_deallocated=self._deallocated,
                allocation_count=self._allocations,
                deallocation_count=self._deallocations,
            )

    def get_layer_stats(self, layer_id: str) -> LayerMemoryStats | None:
        """A copy of one layer's figures; None when it is unknown or blank."""
        with self._lock:
            layer = self._layers.get(layer_id)
            if layer is None:
                return None
            return LayerMemoryStats(
                layer_id=layer_id,
                allocation_count=layer.allocations,
                deallocation_count=layer.deallocations,
                total_bytes_allocated=layer.allocated,
                total_bytes_deallocated=layer.deallocated,
                max_allocation_size=layer.largest,
                last_allocated_at=layer.last_allocated,
                last_deallocated_at=layer.last_deallocated,
            )


def _restarted(layer: _Layer) -> _Layer:
    return _Layer(
        live=layer.live,
        allocations=len(layer.live),
        allocated=sum(layer.live),
        largest=max(layer.live),
        last_allocated=layer.last_allocated,
    )
