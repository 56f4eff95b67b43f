"""Stamping: the stamps of many checkpoints, for the price of one listing where a store can do that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, runtime_checkable

from model_checkpoint.errors import CheckpointException
from model_checkpoint.storage.contract.store import FileStat, Store

StampsRead = tuple[str, Mapping[str, FileStat] | CheckpointException]  # a name, and what was found under it


@runtime_checkable
class Stamping(Protocol):
    """A store that looks at many checkpoints sooner together than one after the other."""

    def stamp_all(self, names: Iterable[str]) -> Iterator[StampsRead]:
        """See the function :func:`stamp_all`."""
        ...


def stamp_all(store: Store, names: Iterable[str]) -> Iterator[StampsRead]:
    """Each name with the stamps of its files, or with what went wrong, in the order of ``names``.

    Example:
        >>> from model_checkpoint.storage import open_store
        >>> store = open_store("memory://doc-stamp-all")
        >>> store.stage("step-1", "attempt-1").publish(b"the manifest")
        >>> [(name, stamps["manifest.json"].size) for name, stamps in stamp_all(store, store.names())]
        [('step-1', 12)]
    """
    if isinstance(store, Stamping):
        yield from store.stamp_all(names)
        return
    for name in names:
        try:
            yield name, store.stamps(name)
        except CheckpointException as error:
            yield name, error
