"""Seeded datasets: their randomness depends on the place in the run, not on a worker's past.

A worker's generators have a past that a resumed run cannot bring back: so each batch brings its own seed, and each
epoch of a stream its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from model_checkpoint.integrations.feeding.held_generators import own_generators
from model_checkpoint.integrations.feeding.index_stream import SeededIndices
from model_checkpoint.integrations.feeding.seeding import mix, seed_all


class SeededMap(Dataset[Any]):
    """A dataset with indices and what makes batches of its samples, both seeded anew for every batch."""

    def __init__(self, inner: Any, collate: Callable[[Any], Any]) -> None:
        self.inner, self._collate = inner, collate
        self._making = inner, collate
        self._together = getattr(inner, "__getitems__", None) is not None  # whether it gives many samples at once
        self._batch = SeededIndices()  # the newest
        self._known = 0  # generators that were seeded for it
        self._held = True  # whether there may be any

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, one: SeededIndices) -> Any:  # a loader without batches asks for one at a time
        self._seed(one)
        return self.inner[one[0]]

    def __getitems__(self, batch: SeededIndices) -> Any:
        """Give the samples of one batch."""
        self._seed(batch, batched=True)
        inner = self.inner
        if self._together:
            return inner.__getitems__(list(batch))
        return [inner[index] for index in batch]

    def _seed(self, batch: SeededIndices, *, batched: bool = False) -> None:
        self._batch, self._batched = batch, batched
        self._known = seed_all(batch.seed, self._making if self._held else None)

    def collate(self, samples: Any) -> Any:
        """Make the batch; once more, if there is a generator now that was not seeded, since nobody knew of it.

        So where there was none after the batch before, none is looked for ahead of this one.
        """
        made = self._collate(samples)
        found = len(own_generators(self._making))
        self._held = found > 0
        if found <= self._known:
            return made
        return self._collate(self.__getitems__(self._batch) if self._batched else self[self._batch])


class SeededStream(IterableDataset[Any]):
    """A stream read by workers, seeded anew for every epoch, so that to read one epoch again is enough.

    A generator that is made while it is read was not seeded, and no batch can be read once more: that is told.
    """

    def __init__(self, inner: Any, collate: Callable[[Any], Any]) -> None:
        self.inner, self._collate, self.base, self.epoch = inner, collate, 0, 0
        self._known = 0  # generators that were seeded for this epoch
        late: Any = torch.zeros((), dtype=torch.bool)
        self._late = late.share_memory_()  # all workers and their maker see it

    @property
    def made_late(self) -> bool:
        """Whether a worker had a generator that was not there when its epoch began."""
        return bool(self._late)

    def collate(self, samples: Any) -> Any:
        """Make the batch, and see whether that or reading it made a generator."""
        made = self._collate(samples)
        if len(own_generators((self.inner, self._collate))) > self._known:
            self._late.fill_(True)
        return made

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        if worker is not None:  # persistent ones come here once an epoch, with a copy of their own
            self._known = seed_all(mix(self.base, self.epoch, worker.id), (self.inner, self._collate))
        self.epoch += 1
        return iter(self.inner)
