"""Seeded datasets: their randomness depends on the place in the run, not on a worker's past.

A worker's generators have a past that a resumed run cannot bring back: so each batch brings its own seed, and each
epoch of a stream its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from model_checkpoint.integrations.feeding.index_stream import SeededIndices
from model_checkpoint.integrations.feeding.seeding import mix, seed_all


class SeededMap(Dataset[Any]):
    """A dataset with indices, seeded anew for every batch."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, one: SeededIndices) -> Any:  # a loader without batches asks for one at a time
        seed_all(one.seed, self.inner)
        return self.inner[one[0]]

    def __getitems__(self, batch: SeededIndices) -> Any:
        """Give the samples of one batch."""
        seed_all(batch.seed, self.inner)
        many = getattr(self.inner, "__getitems__", None)
        return many(list(batch)) if many is not None else [self.inner[index] for index in batch]


class SeededStream(IterableDataset[Any]):
    """A stream read by workers, seeded anew for every epoch, so that to read one epoch again is enough."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.base, self.epoch = inner, 0, 0

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        if worker is not None:  # persistent ones come here once an epoch, with a copy of their own
            seed_all(mix(self.base, self.epoch, worker.id), self.inner)
        self.epoch += 1
        return iter(self.inner)
