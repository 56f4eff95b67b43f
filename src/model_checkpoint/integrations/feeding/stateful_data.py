"""Stateful data: data that knows its own place."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any

from model_checkpoint.integrations.feeding.index_stream import tell_epoch
from model_checkpoint.integrations.feeding.loader_workers import end_at_exit, signals_held


class StatefulData:
    """Anything with ``state_dict`` and ``load_state_dict``, torchdata's StatefulDataLoader among them.

    Example:
        >>> class Counting:
        ...     at = 0
        ...     def __iter__(self):
        ...         while self.at < 3: self.at += 1; yield self.at
        ...         self.at = 0
        ...     def state_dict(self): return {"at": self.at}
        ...     def load_state_dict(self, state): self.at = state["at"]
        >>> data = StatefulData(Counting())
        >>> data.go_to({"at": 2})
        >>> list(data.open(epoch=0, skip=2, base=0))
        [3]
    """

    notes: tuple[str, ...] = ()
    generators: tuple[Any, ...] = ()
    order = 0

    def __init__(self, data: Any) -> None:
        self._data = data

    @property
    def doubts(self) -> tuple[str, ...]:
        """A loader of torchdata does not bring back the generators of its workers."""
        workers = getattr(self._data, "num_workers", 0)
        torch = sys.modules.get("torch.utils.data")
        if workers and torch is not None and isinstance(self._data, torch.DataLoader):
            return (f"{type(self._data).__name__} with workers does not restore what they draw at random",)
        return ()

    def draw_base(self) -> int:
        """Nothing: what it draws, it draws when it is begun."""
        return 0

    def recall_base(self, base: int) -> None:
        """Nothing was drawn for it."""

    def open(self, *, epoch: int, skip: int, base: int) -> Iterator[Any]:
        """Batches from where the data is."""
        tell_epoch(self._data, epoch)
        if not getattr(self._data, "num_workers", 0):
            return iter(self._data)
        with signals_held():  # its workers never let them in again
            batches: Iterator[Any] = iter(self._data)
        end_at_exit(batches)
        return batches

    def consumed(self) -> None:
        """The data counts by itself."""

    def close(self) -> None:
        """Nothing is kept open."""

    def place(self) -> Any:
        """The state of the data, as it is now."""
        return copy.deepcopy(self._data.state_dict())

    def go_to(self, place: Any) -> None:
        """Load a state of the data."""
        self._data.load_state_dict(place)
