"""Feed: what a run asks of its data, and which kind of feed serves it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.integrations.feeding.replayed_data import ReplayedData
from model_checkpoint.integrations.feeding.stateful_data import StatefulData


class Feed(Protocol):
    """Batches from any place of an epoch."""

    @property
    def generators(self) -> Sequence[Any]:
        """Generators of its own that decide about order and samples."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a resume costs."""
        ...

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the batches of a resumed run may be others."""
        ...

    @property
    def numbers(self) -> Mapping[str, Any]:
        """What the data counts by itself and is made by, to see whether a resumed run begins with the same."""
        ...

    @property
    def order(self) -> int:
        """A checksum of the indices consumed in this epoch; 0 where there are none."""
        ...

    def draw_base(self) -> int:
        """Draw what a plain loop would draw when an epoch begins."""
        ...

    def recall_base(self, base: int) -> None:
        """Take over what another process drew for the epoch before, where it would not have been drawn anew."""
        ...

    def open(self, *, epoch: int, skip: int, base: int) -> Iterator[Any]:
        """Batches of an epoch from ``skip`` on; all generators are as they were at its start."""
        ...

    def consumed(self) -> None:
        """Count one batch that has reached the caller."""
        ...

    def close(self) -> None:
        """Let go of what is kept from one epoch to the next."""
        ...

    def place(self) -> Any:
        """What the data itself knows of its place; None if nothing."""
        ...

    def go_to(self, place: Any) -> None:
        """Be where :meth:`place` said, from the next :meth:`open` on."""
        ...


def feed_for(data: Any, *, apart: bool = False) -> Feed:
    """The feed that serves ``data``: a loader, anything with a state of its own, anything that can be begun anew.

    Whoever reads ahead of the training asks for ``apart``: reading then leaves the program's generators alone.

    Example:
        >>> list(feed_for([1, 2, 3]).open(epoch=0, skip=1, base=0))
        [2, 3]
    """
    prepared = sys.modules.get("accelerate.data_loader")
    if prepared is not None and isinstance(data, prepared.DataLoaderAdapter):  # which has a state, but not its place
        from model_checkpoint.integrations.feeding.prepared_loader import PreparedLoader

        return PreparedLoader(data)
    if callable(getattr(data, "state_dict", None)) and callable(getattr(data, "load_state_dict", None)):
        return StatefulData(data)
    torch = sys.modules.get("torch.utils.data")
    if torch is not None and isinstance(data, torch.DataLoader):
        from model_checkpoint.integrations.feeding.torch_loader import TorchLoader

        return TorchLoader(data, apart=apart)
    if isinstance(data, Iterator) or not isinstance(data, Iterable):
        raise OptionInvalid(
            f"data: a {type(data).__qualname__} cannot be begun anew, so no run could be resumed on it. Pass what it "
            "comes from (a list, a loader, an object whose __iter__ begins anew), or something with state_dict and "
            "load_state_dict."
        )
    return ReplayedData(data)
