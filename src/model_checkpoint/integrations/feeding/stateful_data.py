"""Stateful data: data that knows its own place."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from model_checkpoint.integrations.feeding.generators.held_generators import MADE_LATE, doubts_about, own_generators
from model_checkpoint.integrations.feeding.index_stream import tell_epoch
from model_checkpoint.integrations.feeding.kept_numbers import named_content, shape_of
from model_checkpoint.integrations.feeding.loader_workers import end_at_exit, signals_held

_KNOWN = ("torch.", "torchdata.", "builtins")  # the modules of samplers that draw when an epoch begins, or never


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
    order = 0

    def __init__(self, data: Any) -> None:
        torch = sys.modules.get("torch.utils.data")
        self._data, self._is_loader = data, torch is not None and isinstance(data, torch.DataLoader)
        self._content = named_content(data.dataset) if self._is_loader else {}
        self._made = len(self.generators)

    @property
    def generators(self) -> Sequence[Any]:
        """Those of a loader of torchdata and its samplers, and what makes batches: it saves hardly any of them."""
        if not self._is_loader or self._data.num_workers:
            return ()
        return own_generators(self._all)

    @property
    def _all(self) -> tuple[Any, ...]:
        """All that a loader draws from."""
        data = self._data
        return data.dataset, data.collate_fn, data.generator, data.sampler, data.batch_sampler

    @property
    def numbers(self) -> Mapping[str, Any]:
        """How a loader makes batches; what is counted here has a state."""
        return shape_of(self._data) | self._content if self._is_loader else {}

    @property
    def doubts(self) -> tuple[str, ...]:
        """A loader of torchdata does not bring back the generators of its workers."""
        if not self._is_loader:
            return ()
        if self._data.num_workers:
            return (f"{type(self._data).__name__} with workers does not restore what they draw at random",)
        found = (*self._stateless_samplers, *doubts_about(self._all))
        return found if len(self.generators) <= self._made else (*found, MADE_LATE)

    @property
    def _stateless_samplers(self) -> tuple[str, ...]:
        """Samplers that torchdata begins anew in every process, as what they draw is not known to it."""
        by_batch = self._data.batch_sampler
        return tuple(
            f"{type(self._data).__name__} does not restore a {type(one).__name__}, which has no state: use a DataLoader"
            for one in (self._data.sampler, by_batch, getattr(by_batch, "sampler", None))
            if not (one is None or type(one).__module__.startswith(_KNOWN) or hasattr(one, "state_dict"))
        )

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
