"""Ledger: running totals of what it stores. Its manager's lock guards every call but one."""

from __future__ import annotations

from typing import Any

from model_checkpoint import forks
from model_checkpoint.recompute.activations.activation import storages_of
from model_checkpoint.recompute.activations.memory_stats import MemoryStats
from model_checkpoint.recompute.activations.stores import ActivationSlot


class LedgerEntry:
    """One stored activation."""

    __slots__ = ("_lock", "accesses", "nbytes", "slot", "storages")

    def __init__(self, slot: ActivationSlot, nbytes: int, accesses: int) -> None:
        self.slot, self.nbytes, self.accesses = slot, nbytes, accesses
        self.storages: tuple[tuple[tuple[str, int], int], ...] = ()
        self._lock = forks.lock()

    def count_access(self) -> None:
        """Count one retrieval; the only thing a hit has to lock for."""
        with self._lock:
            self.accesses += 1


class Ledger:
    """Totals since the manager was made; the baseline since its last clear.

    Bytes of a storage count as shared as far as the activations on it sum up to more than the whole storage.
    """

    def __init__(self, *, counts_sharing: bool) -> None:
        self.current = self.peak = 0
        self._counts_sharing = counts_sharing
        self._shared = 0
        self._used: dict[tuple[str, int], int] = {}  # storage -> bytes of all activations on it
        self._whole: dict[tuple[str, int], int] = {}
        self._seen: dict[str, int] = {}
        self._baseline = 0
        self._allocated = self._deallocated = self._allocations = self._deallocations = 0

    def see(self, layer_id: str, nbytes: int) -> None:
        """Count a layer towards the baseline, with its latest size."""
        self._baseline += nbytes - self._seen.get(layer_id, 0)
        self._seen[layer_id] = nbytes

    def add(self, layer_id: str, entry: LedgerEntry, activation: Any) -> None:
        """Count a new checkpoint."""
        self.see(layer_id, entry.nbytes)
        self.current += entry.nbytes
        self.peak = max(self.peak, self.current)
        self._allocated += entry.nbytes
        self._allocations += 1
        if self._counts_sharing:
            found = list(storages_of(activation))
            entry.storages = tuple((storage, used) for storage, used, _ in found)
            for storage, used, whole in found:
                self._whole[storage] = whole
                self._use(storage, used)

    def subtract(self, entry: LedgerEntry) -> None:
        """Count a checkpoint as gone."""
        self.current -= entry.nbytes
        self._deallocated += entry.nbytes
        self._deallocations += 1
        for storage, used in entry.storages:
            self._use(storage, -used)

    def _use(self, storage: tuple[str, int], change: int) -> None:
        before = self._used.get(storage, 0)
        after = before + change
        whole = self._whole[storage]
        self._shared += max(0, after - whole) - max(0, before - whole)
        if after:
            self._used[storage] = after
        else:
            del self._used[storage], self._whole[storage]

    def clear(self) -> None:
        """Count everything as gone and begin a new baseline."""
        self._deallocated += self.current
        self._deallocations = self._allocations
        self.current = self._shared = self._baseline = 0
        self._used, self._whole, self._seen = {}, {}, {}

    def stats(self, *, count: int, spilled: int) -> MemoryStats:
        """The totals as a value."""
        return MemoryStats(
            current_memory_used=self.current,
            peak_memory_used=self.peak,
            checkpoint_count=count,
            baseline_memory=self._baseline,
            shared_memory=self._shared,
            spilled_memory=spilled,
            total_memory_allocated=self._allocated,
            total_memory_deallocated=self._deallocated,
            allocation_count=self._allocations,
            deallocation_count=self._deallocations,
        )
