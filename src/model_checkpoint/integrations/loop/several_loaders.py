"""Several loaders: one batch of each at a time, each loader with a place of its own.

The first one decides what an epoch is. Another one that ends is begun anew, and one that is longer goes on in the next
epoch where it was, so that nothing of its data is left out. Each is opened right before its first batch is read: then
what it draws for its order lies where a second process can find it again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from model_checkpoint.errors import OptionInvalid, StructureMismatch
from model_checkpoint.integrations.feeding.feed import Feed, feed_for
from model_checkpoint.integrations.feeding.index_stream import length_of
from model_checkpoint.integrations.loop.place import RunPlace
from model_checkpoint.integrations.loop.saved_run import SavedRun

_END = object()
_PARTS = ("dataset", "collate_fn", "sampler", "batch_sampler")


class SeveralLoaders:
    """A feed whose batches are dictionaries, made of one batch of each loader.

    Example:
        >>> feed = SeveralLoaders({"a": [1, 2, 3], "b": [10, 20]})
        >>> list(feed.open(epoch=0, skip=0, base=0))
        [{'a': 1, 'b': 10}, {'a': 2, 'b': 20}, {'a': 3, 'b': 10}]
        >>> list(feed.open(epoch=1, skip=0, base=0))
        [{'a': 1, 'b': 20}, {'a': 2, 'b': 10}, {'a': 3, 'b': 20}]
    """

    generators: tuple[Any, ...] = ()  # each loader keeps those of its own
    numbers: Mapping[str, Any] = MappingProxyType({})  # these too

    def __init__(self, data: Mapping[str, Any]) -> None:
        if not data or not all(isinstance(name, str) for name in data):
            raise OptionInvalid(f"data: several loaders need a name each, got {list(data)!r}.")
        self._feeds: dict[str, Feed] = {name: feed_for(one) for name, one in data.items()}
        self._runs = {name: SavedRun(feed) for name, feed in self._feeds.items()}
        self._batches: dict[str, Iterator[Any]] = {}
        self._saved: Mapping[str, Any] | None = None
        self._first = next(iter(data))
        self._ahead: list[str] = []  # whose batch was read and has not reached the caller yet

    @property
    def notes(self) -> tuple[str, ...]:
        """What a resume costs, and with whom."""
        return tuple(f"{name}: {note}" for name, feed in self._feeds.items() for note in feed.notes)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the batches of a resumed run may be others, and whose."""
        return tuple(f"{name}: {doubt}" for name, feed in self._feeds.items() for doubt in feed.doubts)

    @property
    def order(self) -> int:
        """A checksum of all indices consumed in the present epochs of all loaders."""
        orders = [self._feeds[name].order if run.place.begun else 0 for name, run in self._runs.items()]
        return zlib.crc32(repr(orders).encode())

    def draw_base(self) -> int:
        """Nothing: each loader draws when it is begun."""
        return 0

    def recall_base(self, base: int) -> None:
        """Each loader has its own in its place."""

    def open(self, *, epoch: int, skip: int, base: int) -> Iterator[Any]:
        """Batches from the places of the loaders on, until the first of them ends."""
        self._take_up()
        first = self._runs[self._first]
        if (epoch or skip) and first.place == RunPlace():
            raise StructureMismatch(
                f"run: saved with one loader, now there are {list(self._runs)}. Give the run the loader it had, or "
                "another root."
            )
        if first.place.begun and first.place.epoch < epoch:
            self._end(self._first)
        return self._together()

    def _take_up(self) -> None:
        states, self._saved = self._saved, None
        if states is None:
            return
        if list(states) != list(self._runs):
            raise StructureMismatch(
                f"run: the data was saved as the loaders {list(states)}, now there are {list(self._runs)}. Give the "
                "run the loaders it had, in their order, or another root."
            )
        for name, run in self._runs.items():
            batches = run.take_up(states[name])
            if batches is not None:
                self._batches[name] = batches

    def _together(self) -> Iterator[dict[str, Any]]:
        while True:
            found: dict[str, Any] = {}
            for name in self._runs:
                batch = self._next(name)
                if batch is _END:
                    return
                found[name] = batch
            self._ahead = list(found)
            yield found

    def _next(self, name: str) -> Any:
        """The next batch of one loader; the end only of the first."""
        batch = next(self._open(name), _END)
        if batch is _END and name != self._first:
            self._end(name)
            batch = next(self._open(name), _END)
            if batch is _END:
                raise OptionInvalid(
                    f"data: the loader {name!r} gives no batch, so none can go with those of the others."
                )
        return batch

    def _open(self, name: str) -> Iterator[Any]:
        if name not in self._batches:
            self._batches[name] = self._runs[name].open_epoch()
        return self._batches[name]

    def _end(self, name: str) -> None:
        """The epoch of one loader is over; the next is opened when its first batch is asked for."""
        self._batches.pop(name, None)
        self._runs[name].place = self._runs[name].place.after_epoch()

    def consumed(self) -> None:
        """Count one batch of each that has reached the caller."""
        for name in self._ahead:
            self._feeds[name].consumed()
            self._runs[name].place = self._runs[name].place.after_batch()
        self._ahead = []

    def close(self) -> None:
        """End the workers."""
        self._batches.clear()
        for feed in self._feeds.values():
            feed.close()

    def place(self) -> dict[str, Any]:
        """Where each loader is, with the generators its order follows from."""
        return {name: run.state_dict() for name, run in self._runs.items()}

    def go_to(self, place: Mapping[str, Any]) -> None:
        """Be there, from the next :meth:`open` on."""
        self._saved = place


def feed_of(data: Any) -> Feed:
    """The feed of one loader, or of several that are given by name."""
    return SeveralLoaders(data) if isinstance(data, Mapping) else feed_for(data)


def batches_of(data: Any) -> int | None:
    """Batches of an epoch, where that is known.

    Example:
        >>> batches_of({"a": [1, 2, 3], "b": [10, 20]})
        3
    """
    return length_of(next(iter(data.values()))) if isinstance(data, Mapping) else length_of(data)


def parts_of(data: Any) -> Iterator[Any]:
    """What makes batches: their feeds know all about it.

    Example:
        >>> list(parts_of([1, 2]))
        [[1, 2]]
    """
    for one in data.values() if isinstance(data, Mapping) else (data,):
        yield one
        yield from (getattr(one, name) for name in _PARTS if hasattr(one, name))
