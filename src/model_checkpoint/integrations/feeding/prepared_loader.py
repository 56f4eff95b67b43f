"""Prepared loader: the batches of a loader that accelerate prepared, begun anywhere.

What accelerate wraps around a loader (devices, the end of the data told one batch early) stays as it is: its wrapper is
copied, and the copy finds inside an iterator that was opened before. It reads one batch ahead, so samples are read
apart from the program's generators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import accelerate
import torch
from accelerate.data_loader import DataLoaderAdapter, SeedableRandomSampler
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.integrations.errors import TrainerUnknown
from model_checkpoint.integrations.feeding.torch_loader import TorchLoader
from model_checkpoint.integrations.known_versions import require_known

_END = object()


class PreparedLoader:
    """The batches of one loader made by ``accelerator.prepare``; a feed like any other.

    Example:
        >>> from accelerate import Accelerator
        >>> loader = Accelerator(cpu=True).prepare(torch.utils.data.DataLoader([10, 11, 12, 13, 14], batch_size=2))
        >>> [batch.tolist() for batch in PreparedLoader(loader).open(epoch=0, skip=1, base=5)]
        [[12, 13], [14]]
    """

    def __init__(self, loader: Any) -> None:
        require_known("accelerate", accelerate.__version__)
        require_one_process()
        _require_plain(loader)
        self._shuffle = _seedable_sampler(loader)
        self._feed = TorchLoader(loader.base_dataloader, apart=True)
        self._opened: Iterator[Any] | None = None
        self.loader = with_inside(loader, self._take_opened)

    def _take_opened(self) -> Iterator[Any]:
        opened, self._opened = self._opened, None
        return iter(()) if opened is None else opened

    @property
    def generators(self) -> Sequence[Any]:
        """Those of the loader and its samplers."""
        return self._feed.generators

    @property
    def notes(self) -> tuple[str, ...]:
        """A stream is read again."""
        return self._feed.notes

    @property
    def doubts(self) -> tuple[str, ...]:
        """Workers that may overtake each other."""
        return self._feed.doubts

    @property
    def numbers(self) -> dict[str, Any]:
        """What dataset and samplers count, and how the loader makes batches."""
        return self._feed.numbers

    @property
    def order(self) -> int:
        """A checksum of the indices consumed in this epoch."""
        return self._feed.order

    def draw_base(self) -> int:
        """Draw what a plain loop would draw when an epoch begins."""
        return self._feed.draw_base()

    def recall_base(self, base: int) -> None:
        """Take over the seed of workers that would have lived on."""
        self._feed.recall_base(base)

    def open(self, *, epoch: int, skip: int, base: int) -> Iterator[Any]:
        """Batches from ``skip`` on; the place is found now, whenever the first batch is asked for."""
        self.loader.set_epoch(epoch)
        batches = self._feed.open(epoch=epoch, skip=skip, base=base)
        first = next(batches, _END) if skip else _END
        if skip and first is _END:
            return iter(())  # accelerate fails on a stream of which nothing is left
        self._opened = chain([first], batches) if skip else batches
        return iter(self.loader)

    def consumed(self) -> None:
        """Count one batch that has reached the caller, not one that was read ahead."""
        self._feed.consumed()

    def close(self) -> None:
        """End the workers that would be kept for another epoch."""
        self._feed.close()

    def place(self) -> Mapping[str, int] | None:
        """The seed of accelerate's own shuffling, which a new process may have drawn differently."""
        return None if self._shuffle is None else {"initial_seed": self._shuffle.initial_seed}

    def go_to(self, place: Mapping[str, int]) -> None:
        """Shuffle as the saved run did."""
        if self._shuffle is not None:
            self._shuffle.initial_seed = place["initial_seed"]


def seeded_passes(loader: Any, seed: Callable[[], int]) -> Any:
    """Give back a prepared loader for evaluations: each pass under a seed of its own, and nothing drawn for the rest.

    Example:
        >>> from accelerate import Accelerator
        >>> loader = Accelerator(cpu=True).prepare(torch.utils.data.DataLoader([1, 2, 3], batch_size=2))
        >>> [batch.tolist() for batch in seeded_passes(loader, lambda: 7)]
        [[1, 2], [3]]
    """
    feed = TorchLoader(loader.base_dataloader, apart=True)
    return with_inside(loader, lambda: feed.open(epoch=0, skip=0, base=seed()))


def with_inside(loader: Any, begin: Callable[[], Iterator[Any]]) -> Any:
    """Copy a prepared loader; the copy takes its batches from what ``begin`` gives."""
    copy = object.__new__(type(loader))  # its own way to be copied makes the loader anew
    copy.__dict__.update(loader.__dict__)
    copy.base_dataloader = InnerLoader(loader.base_dataloader, begin)
    copy._update_state_dict = _keep_no_state  # else it asks at every batch for a state that the inside does not have
    return copy


def _keep_no_state() -> None:
    """Stand in for what accelerate does at every batch to know its place: nobody asks a copy for that."""


class InnerLoader:
    """Stands in for the loader inside a prepared one: the same in everything but where its batches come from."""

    def __init__(self, base: Any, begin: Callable[[], Iterator[Any]]) -> None:
        self._base, self._begin = base, begin

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # a prepared loader says that it is of the class of this
        return self._base.__class__

    def __iter__(self) -> Iterator[Any]:
        return self._begin()

    def __len__(self) -> int:
        return len(self._base)

    def __getattr__(self, name: str) -> Any:
        if name == "_base":  # asked for before it is there, by whoever copies this
            raise AttributeError(name)
        return getattr(self._base, name)


def _seedable_sampler(loader: Any) -> Any:
    """The sampler by which accelerate shuffles the same on all ranks, if it does."""
    sampler = getattr(loader.batch_sampler, "sampler", None)
    if not isinstance(sampler, SeedableRandomSampler):
        return None
    if sampler.generator is None:
        sampler.generator = torch.Generator()  # else it would be made later, and be one more than at the start
    return sampler


def require_one_process() -> None:
    """Refuse what is trained by several processes, or by a library that keeps a part of the state to itself."""
    state = AcceleratorState()
    if state.distributed_type is not DistributedType.NO or state.num_processes != 1:
        raise TrainerUnknown(
            f"accelerate runs {state.num_processes} process(es) as {state.distributed_type.value}; a resume is known "
            "to be exact with one process. Save with mc.save(..., coordinator=TorchCoordinator()) in a loop of yours "
            "(docs/distributed.md)."
        )


def _require_plain(loader: Any) -> None:
    if not isinstance(loader, DataLoaderAdapter):
        raise OptionInvalid(f"data: a {type(loader).__qualname__} was not prepared by accelerator.prepare.")
    if loader.use_stateful_dataloader:
        raise OptionInvalid(
            "data: use_stateful_dataloader=True does not bring back what its workers draw, and reads ahead of its own "
            "state. Prepare the loader without it: the place is kept here, and found without reading samples."
        )
