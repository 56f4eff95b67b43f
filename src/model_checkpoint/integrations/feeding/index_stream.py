"""Index stream: the order of a sampler from any place, each batch with a seed of its own.

It stands in for the batch sampler of a loader. One object serves all epochs, because an iterator with persistent
workers keeps the sampler it was made with: it is rewound, never replaced.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

from model_checkpoint.integrations.feeding.generators.seeding import mix, stir
from model_checkpoint.integrations.feeding.replayed_data import Isolated

_PROMPT = ("torch.utils.data", "accelerate.data_loader")  # their samplers draw when an epoch begins
_AT_ONCE = 4096  # batches that are skipped together


class SeededIndices(list[Any]):
    """The indices of one batch, and the seed that goes to the worker with them."""

    __slots__ = ("seed",)
    seed: int


class Filler(SeededIndices):
    """No batch at all: it keeps a worker's turn, where its batch was consumed before the run was resumed."""


class IndexStream:
    """A sampler begun anywhere; indices are drawn for what is skipped, but no sample is read.

    Example:
        >>> stream = IndexStream([[0, 1], [2, 3], [4]], batched=True, seeded=False)
        >>> stream.begin(base=7, epoch=0, skip=1)
        >>> list(stream), len(stream)
        ([[2, 3], [4]], 3)
    """

    def __init__(self, sampler: Any, *, batched: bool, seeded: bool) -> None:
        self._sampler, self._batched, self._seeded = sampler, batched, seeded
        self._source: Iterator[Any] = iter(())
        self._seed = self._at = self._order = 0  # of the epoch, of the next batch, of all that were consumed
        self._fillers = self._whole = 0  # batches that are none; the order of the epoch, where it is known at once
        self._ahead: deque[int] = deque()  # the order up to each batch that was drawn and not consumed yet

    def begin(self, *, base: int, epoch: int, skip: int, fillers: int = 0) -> None:
        """Start an epoch at batch ``skip``, after so many fillers; the generators must be as they were at its start."""
        self._seed, self._at, self._order, self._fillers = mix(base, epoch), skip, 0, fillers
        self._whole = 0
        self._ahead.clear()
        source: Any = self._sampler if _is_prompt(self._sampler) else self._early()
        if _only_cuts(source):  # then only indices are drawn for what is skipped, and batches not even made
            indices = iter(source.sampler)
            self._skip(indices, skip, size=source.batch_size)
            self._source = _cut(indices, source.batch_size, drop_last=source.drop_last)
        else:
            self._source = iter(source)
            self._skip(self._source, skip, size=None)

    def _skip(self, source: Iterator[Any], count: int, *, size: int | None) -> None:
        """Pass over ``count`` batches, each an item of ``source``, or ``size`` of them."""
        for at in range(0, count, _AT_ONCE):
            passed = list(islice(source, (size or 1) * min(_AT_ONCE, count - at)))
            self._order = _joined(self._order, passed, size=size)

    def _early(self) -> Iterator[Any]:
        """The order of a sampler that may draw between two batches: as long as it says it is, drawn now.

        What follows, if it has no length or gives more, is drawn apart from all that others draw.
        """
        source = iter(self._sampler)
        known = list(islice(source, length_of(self._sampler) or 0))
        self._whole = _joined(0, known)
        return chain(known, Isolated(source, seed=self._seed, owner=None))

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> IndexStream:  # a multi-process iterator asks twice: it must not start anew
        return self

    def __next__(self) -> Any:
        if self._fillers:
            self._fillers -= 1
            return Filler()
        indices = next(self._source)
        before = self._ahead[-1] if self._ahead else self._order
        many = type(indices) is list  # of any other a part may look different
        self._ahead.append(_joined(before, indices, size=len(indices)) if many else _joined(before, [indices]))
        if not self._seeded:
            return indices
        batch = SeededIndices(indices if self._batched else [indices])
        batch.seed, self._at = stir(self._seed, self._at), self._at + 1
        return batch

    def consumed(self) -> None:
        """Count one batch that has reached the caller."""
        if self._ahead:
            self._order = self._ahead.popleft()

    @property
    def order(self) -> int:
        """A checksum of all indices consumed in this epoch, to tell whether the order is still the same.

        Where there are none yet, that of the order which is known already.
        """
        return self._order or self._whole


def _is_prompt(sampler: Any) -> bool:
    """Whether it draws from global generators only when an epoch begins, and so do all that it takes indices from."""
    while sampler is not None:
        if not type(sampler).__module__.startswith(_PROMPT):
            return False
        sampler = getattr(sampler, "batch_sampler", getattr(sampler, "sampler", None))
    return True


def length_of(data: Any) -> int | None:
    """How many there are, where that is known; a sampler of batches may have a length that asks another in vain."""
    try:
        return len(data)
    except (TypeError, NotImplementedError):
        return None


def _only_cuts(sampler: Any) -> bool:
    """Whether it is torch's own way to cut an order into batches, which can be done without it."""
    torch = sys.modules.get("torch.utils.data")
    return torch is not None and type(sampler) is torch.BatchSampler


def _cut(indices: Iterator[Any], size: int, *, drop_last: bool) -> Iterator[list[Any]]:
    while batch := list(islice(indices, size)):
        if len(batch) == size or not drop_last:
            yield batch


def _joined(order: int, items: Sequence[Any], *, size: int | None = None) -> int:
    """The checksum with some more batches, or indices of which ``size`` are one; the same however many come at once."""
    single = size is not None or not items or not isinstance(items[0], (list, tuple))
    try:
        return zlib.crc32(array("q", items if single else chain.from_iterable(items)), order)
    except (TypeError, OverflowError):  # a sampler may give anything: strings, pairs
        batches = items if size is None else [items[at : at + size] for at in range(0, len(items), size)]
        for one in batches:
            order = zlib.crc32(repr(one).encode(), order)
        return order


def tell_epoch(loader: Any, epoch: int) -> None:
    """Tell the samplers of a loader which epoch it is, where they want to know."""
    for name in ("sampler", "batch_sampler"):
        told = getattr(getattr(loader, name, None), "set_epoch", None)
        if told is not None:
            told(epoch)
