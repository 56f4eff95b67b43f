"""Torch loader: the batches of a torch DataLoader, begun anywhere without reading what is skipped.

The loader is copied, and the copy gets an index stream that begins where the run is, a dataset that is seeded per batch
in its workers, workers that outlive signals, and a generator of its own for the seeds of its workers. The caller's
loader is never changed. A run draws from the caller's generators what a plain loop would have drawn, so its numbers
are those of a plain loop, but for what workers draw at random.

A trainer that reads ahead would mix what samples draw with what the model draws. For it samples are read apart: every
batch under a seed of its own, without workers too, and what was drawn for it leaves the program's generators alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from model_checkpoint.integrations.feeding.generators.held_generators import (
    MADE_LATE,
    RUNNING,
    doubts_about,
    own_generators,
)
from model_checkpoint.integrations.feeding.generators.seeding import mix
from model_checkpoint.integrations.feeding.index_stream import IndexStream, length_of, tell_epoch
from model_checkpoint.integrations.feeding.kept_numbers import named_content, numbers_of, shape_of
from model_checkpoint.integrations.feeding.loader_workers import DeafWorker, end_at_exit, end_workers, signals_held
from model_checkpoint.integrations.feeding.replayed_data import Apart, Isolated
from model_checkpoint.integrations.feeding.seeded_datasets import OwnDataset, SeededMap, SeededStream

OF_ITS_OWN = "{} begins its batches in a way of its own, which may pass over some that its sampler gives, or add some"


class TorchLoader:
    """The batches of one DataLoader; ``apart`` from the program's generators for whoever reads ahead.

    Example:
        >>> loader = DataLoader([10, 11, 12, 13, 14], batch_size=2)
        >>> [batch.tolist() for batch in TorchLoader(loader).open(epoch=0, skip=1, base=5)]
        [[12, 13], [14]]
    """

    def __init__(self, loader: DataLoader[Any], *, apart: bool = False) -> None:
        self._loader = loader
        self._streams = isinstance(loader.dataset, IterableDataset)
        self._seeded = apart or bool(loader.num_workers)
        self._clone: DataLoader[Any] | None = None
        self._indices = self._index_stream()
        self._base: int | None = None
        kind = type(loader)
        self._plain = kind.__iter__ is DataLoader.__iter__ and kind._get_iterator is DataLoader._get_iterator
        self._content = named_content(loader.dataset)  # as it is before it is read
        self._made = self._held()
        self._first_doubts = self._doubts_now()

    def _held(self) -> tuple[int, int]:
        """How many generators there are that make batches, and that decide about the order."""
        return len(own_generators(self._making)), len(own_generators(self._ordering, besides=self._loader.dataset))

    def _doubts_now(self) -> tuple[str, ...]:
        making = doubts_about(self._making)
        return (*doubts_about(self._ordering, besides=self._loader.dataset), *making)

    def _index_stream(self) -> IndexStream | None:
        if self._streams:
            return None
        loader = self._loader
        batched = loader.batch_sampler is not None
        source = loader.batch_sampler if batched else loader.sampler
        return IndexStream(source, batched=batched, seeded=self._seeded)

    @property
    def generators(self) -> Sequence[Any]:
        """Those of the loader and its samplers; also those that make batches, unless each batch seeds them."""
        found = own_generators(self._ordering, besides=self._loader.dataset)
        if not self._seeded and not self._streams:
            found += own_generators(self._making)
        return list({id(one): one for one in found}.values())

    @property
    def _ordering(self) -> tuple[Any, ...]:
        """All that decides about the order."""
        return self._loader.generator, self._loader.sampler, self._loader.batch_sampler

    @property
    def _making(self) -> tuple[Any, ...]:
        """All that makes batches."""
        return self._loader.dataset, self._loader.collate_fn

    @property
    def numbers(self) -> dict[str, Any]:
        """What dataset and samplers count, and how the loader makes batches."""
        loader, by_batch = self._loader, self._loader.batch_sampler
        found = numbers_of(loader.dataset, loader.sampler, by_batch, getattr(by_batch, "sampler", None))
        found |= shape_of(loader) | self._content | {"persistent_workers": loader.persistent_workers}
        if self._streams:
            return {**found, "num_workers": loader.num_workers}
        return {**found, "len(dataset)": length_of(loader.dataset), "a seed for each batch": self._seeded}

    @property
    def notes(self) -> tuple[str, ...]:
        """A stream has no indices to skip by."""
        if self._streams:
            return ("an IterableDataset has no state: the epoch is read again up to the place",)
        return ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """Workers that may overtake each other, generators that were not found."""
        found: tuple[str, ...] = ()
        if self._loader.num_workers and not getattr(self._loader, "in_order", True):
            found = ("in_order=False: batches come in the order in which workers finish",)
        if not self._plain:
            found += (OF_ITS_OWN.format(type(self._loader).__name__),)
        seeded = None if self._clone is None else self._clone.dataset
        if isinstance(seeded, (SeededMap, SeededStream)):
            found += seeded.told.doubts
        if self._makes_late:
            found += (MADE_LATE,)
        now = (one for one in self._doubts_now() if one is not RUNNING or not self._streams)  # which it may make anew
        return tuple(dict.fromkeys((*found, *self._first_doubts, *now)))

    @property
    def _makes_late(self) -> bool:
        """Whether reading made a generator here; where there are indices, a worker reads that batch once more."""
        making, ordering = self._held()
        return ((self._streams or not self._seeded) and making > self._made[0]) or ordering > self._made[1]

    @property
    def order(self) -> int:
        """A checksum of the indices consumed in this epoch."""
        return 0 if self._indices is None else self._indices.order

    def draw_base(self) -> int:
        """Draw the seed of the workers as the loader would: each epoch, persistent workers only once."""
        if self._base is None or not self._loader.persistent_workers:
            drawn = torch.empty((), dtype=torch.int64).random_(generator=self._loader.generator)
            self._base = int(drawn.item())
        return self._base

    def recall_base(self, base: int) -> None:
        """Persistent workers would have lived on with the seed they had."""
        self._base = base

    def open(self, *, epoch: int, skip: int, base: int) -> Iterator[Any]:
        """Batches from ``skip`` on; for those before it only indices are drawn."""
        self._base = base
        tell_epoch(self._loader, epoch)
        if self._clone is None:  # persistent workers belong to it
            self._clone = self._make_clone()
        if self._indices is not None:
            return self._begin(self._clone, self._indices, epoch=epoch, skip=skip, base=base)
        return self._stream(self._clone, epoch=epoch, skip=skip, base=base)

    def _begin(
        self, clone: DataLoader[Any], indices: IndexStream, *, epoch: int, skip: int, base: int
    ) -> Iterator[Any]:
        in_turn = self._plain and getattr(clone, "in_order", True)
        fillers = skip % clone.num_workers if clone.num_workers and in_turn else 0  # each batch by the worker it had
        indices.begin(base=base, epoch=epoch, skip=skip, fillers=fillers)
        batches = self._iterate(clone, base=base)
        for _ in range(fillers):
            next(batches)
        return batches

    def _stream(self, clone: DataLoader[Any], *, epoch: int, skip: int, base: int) -> Iterator[Any]:
        if isinstance(clone.dataset, SeededStream) and clone._iterator is None:
            clone.dataset.base, clone.dataset.epoch = base, epoch  # persistent workers count on by themselves
        batches = self._iterate(clone, base=base)
        if not clone.num_workers:
            return Isolated(batches, seed=mix(base, epoch), owner=self._making).skip(skip)
        for _ in range(skip):
            next(batches)
        return batches

    def _iterate(self, clone: DataLoader[Any], *, base: int) -> Iterator[Any]:
        clone.generator.manual_seed(base)  # the seed that workers are told of
        if not clone.num_workers:
            return Apart(iter(clone)) if self._seeded and not self._streams else iter(clone)
        with signals_held():
            batches: Iterator[Any] = iter(clone)
        end_at_exit(batches)
        return batches

    def _make_clone(self) -> DataLoader[Any]:
        loader, clone = self._loader, copy.copy(self._loader)
        changes: dict[str, Any] = {"_iterator": None}
        if self._seeded and not self._streams:
            seeded = SeededMap(*self._making)
            changes |= {"dataset": seeded, "collate_fn": seeded.collate}
        if loader.num_workers:
            if self._streams:
                stream = SeededStream(*self._making)
                changes |= {"dataset": stream, "collate_fn": stream.collate}
            changes["worker_init_fn"] = DeafWorker(OwnDataset(loader.worker_init_fn))
        if self._indices is not None:
            changes["sampler" if loader.batch_sampler is None else "batch_sampler"] = self._indices
        changes["generator"] = torch.Generator()  # what it draws for workers must not move the caller's
        for name, value in changes.items():
            object.__setattr__(clone, name, value)  # a loader lets nobody change it once it is made
        return clone

    def consumed(self) -> None:
        """Count one batch that has reached the caller."""
        if self._indices is not None:
            self._indices.consumed()

    def close(self) -> None:
        """End the workers that would be kept for another epoch."""
        if self._clone is not None:
            end_workers(self._clone._iterator)
            self._clone = None

    def place(self) -> None:
        """It knows none."""

    def go_to(self, place: Any) -> None:
        """The number of batches says it all."""
