"""Seeded datasets: their randomness depends on the place in the run, not on a worker's past.

A worker's generators have a past that a resumed run cannot bring back: so each batch brings its own seed, and each
epoch of a stream its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from model_checkpoint.integrations.feeding.generators.held_generators import MADE_LATE, own_generators
from model_checkpoint.integrations.feeding.generators.seeding import mix, seed_all
from model_checkpoint.integrations.feeding.index_stream import Filler, SeededIndices
from model_checkpoint.integrations.feeding.kept_numbers import changed_numbers, numbers_of


class OwnDataset:
    """A ``worker_init_fn`` before which a worker is told of the caller's dataset, not of what stands around it."""

    def __init__(self, then: Callable[[int], Any] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        """Begin the life of a worker."""
        info: Any = get_worker_info()
        object.__setattr__(info, "dataset", info.dataset.inner)  # which nobody may do by other means
        if self._then is not None:
            self._then(worker)


class ToldByWorkers:
    """What workers see of a dataset that no resume can bring back; all of them and their maker know it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._numbers: dict[str, float] | None = None  # as they were when the worker began
        told: Any = torch.zeros(2, dtype=torch.bool)
        self._told = told.share_memory_()

    @property
    def doubts(self) -> tuple[str, ...]:
        """What was seen."""
        return tuple(itertools.compress((MADE_LATE, COUNTED), self._told.tolist()))

    def made_late(self) -> None:
        """A generator was made that nobody could seed."""
        self._told[0] = True

    def look(self) -> None:
        """See whether the dataset counts what it reads."""
        if self._numbers is None:
            self._numbers = numbers_of(self._inner)
        elif changed_numbers(self._numbers, numbers_of(self._inner)):
            self._told[1] = True


COUNTED = "a worker keeps what the dataset counts as it is read, and nobody saves that"


class SeededMap(Dataset[Any]):
    """A dataset with indices and what makes batches of its samples, both seeded anew for every batch."""

    def __init__(self, inner: Any, collate: Callable[[Any], Any]) -> None:
        self.inner, self._collate = inner, collate
        self._making = inner, collate
        self.told = ToldByWorkers(inner)
        self._together = getattr(inner, "__getitems__", None) is not None  # whether it gives many samples at once
        self._batch = SeededIndices()  # the newest
        self._known = 0  # generators that were seeded for it
        self._held = True  # whether there may be any

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, one: SeededIndices) -> Any:  # a loader without batches asks for one at a time
        self._seed(one)
        return None if isinstance(one, Filler) else self.inner[one[0]]

    def __getitems__(self, batch: SeededIndices) -> Any:
        """Give the samples of one batch."""
        self._seed(batch, batched=True)
        if isinstance(batch, Filler):
            return None
        inner = self.inner
        if self._together:
            return inner.__getitems__(list(batch))
        return [inner[index] for index in batch]

    def _seed(self, batch: SeededIndices, *, batched: bool = False) -> None:
        self._batch, self._batched = batch, batched
        if isinstance(batch, Filler):
            return
        self._known = seed_all(batch.seed, self._making if self._held else None)
        self._look()

    def _look(self) -> None:
        if get_worker_info() is not None:  # what is read here is seen by the run itself
            self.told.look()

    def collate(self, samples: Any) -> Any:
        """Make the batch; once more, if there is a generator now that was not seeded, since nobody knew of it.

        So where there was none after the batch before, none is looked for ahead of this one.
        """
        if isinstance(self._batch, Filler):
            return None
        made = self._collate(samples)
        self._look()
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
        self.told = ToldByWorkers(inner)

    def collate(self, samples: Any) -> Any:
        """Make the batch, and see whether that or reading it made a generator."""
        made = self._collate(samples)
        if len(own_generators((self.inner, self._collate))) > self._known:
            self.told.made_late()
        return made

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        if worker is not None:  # persistent ones come here once an epoch, with a copy of their own
            self._known = seed_all(mix(self.base, self.epoch, worker.id), (self.inner, self._collate))
            self.told.look()
        self.epoch += 1
        return iter(self.inner)
