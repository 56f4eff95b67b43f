"""Memory figures: what checkpointed activations cost, as values taken at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime


def timestamp() -> datetime:
    """The present moment in UTC, as every statistic here records it."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStats:
    """Bytes held by checkpoints at one moment, and what led there.

    A checkpoint counts element count times element size, also where several alias one storage;
    ``shared_memory`` is the part so counted more than once, ``spilled_memory`` the part that lies outside working
    memory (disk, another device). The peak survives clearing and moves only up, until ``reset_peak``.

    Example:
        >>> stats = MemoryStats(current_memory_used=300, checkpoint_count=2, baseline_memory=1000)
        >>> stats.average_memory_per_checkpoint, stats.memory_savings
        (150, 700)
        >>> stats.calculate_memory_reduction_percentage(1000)
        0.7
    """

    current_memory_used: int = 0
    peak_memory_used: int = 0
    checkpoint_count: int = 0
    baseline_memory: int = 0
    shared_memory: int = 0
    spilled_memory: int = 0
    total_memory_allocated: int = 0
    total_memory_deallocated: int = 0
    allocation_count: int = 0
    deallocation_count: int = 0
    most_accessed: tuple[str, ...] = ()
    least_accessed: tuple[str, ...] = ()
    timestamp: datetime = field(default_factory=timestamp)

    @property
    def average_memory_per_checkpoint(self) -> int:
        """Whole bytes per checkpoint; 0 when there is none."""
        return self.current_memory_used // self.checkpoint_count if self.checkpoint_count else 0

    @property
    def memory_savings(self) -> int:
        """Bytes less than the baseline, which is all activations seen kept at once; negative when more."""
        return self.calculate_memory_savings(self.baseline_memory)

    @property
    def resident_memory(self) -> int:
        """Bytes really occupied in working memory: shared storage once, spilled checkpoints not at all."""
        return self.current_memory_used - self.shared_memory - self.spilled_memory

    def calculate_memory_savings(self, total_memory: int) -> int:
        """Bytes less than ``total_memory``; negative when more."""
        return total_memory - self.current_memory_used

    def calculate_memory_reduction_percentage(self, total_memory: int) -> float:
        """Savings as a fraction of ``total_memory``; 0.0 when that is 0."""
        return self.calculate_memory_savings(total_memory) / total_memory if total_memory else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemoryStats:
    """What one layer allocated and gave back.

    Example:
        >>> stats = LayerMemoryStats(layer_id="a", allocation_count=2, total_bytes_allocated=30)
        >>> stats.average_allocation_size, stats.is_currently_allocated
        (15, True)
    """

    layer_id: str
    allocation_count: int = 0
    deallocation_count: int = 0
    total_bytes_allocated: int = 0
    total_bytes_deallocated: int = 0
    max_allocation_size: int = 0
    last_allocated_at: datetime | None = None
    last_deallocated_at: datetime | None = None

    @property
    def average_allocation_size(self) -> int:
        """Whole bytes per allocation; 0 when there was none."""
        return self.total_bytes_allocated // self.allocation_count if self.allocation_count else 0

    @property
    def is_currently_allocated(self) -> bool:
        """Whether more was allocated than given back."""
        return self.allocation_count > self.deallocation_count


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEvent:
    """An allocation or deallocation, with the totals right after it.

    Example:
        >>> MemoryEvent(layer_id="a", size_bytes=8, current_memory=8, peak_memory=8).size_bytes
        8
    """

    layer_id: str
    size_bytes: int
    current_memory: int
    peak_memory: int
    timestamp: datetime = field(default_factory=timestamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimitEvent:
    """An allocation left more in use than the limit allows.

    Example:
        >>> MemoryLimitEvent(layer_id="a", current_memory=12, limit=10).limit
        10
    """

    layer_id: str
    current_memory: int
    limit: int
    timestamp: datetime = field(default_factory=timestamp)
