"""Root catalog: the checkpoints of a plain root, and when each was last verified, without any database."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from model_checkpoint.engine.root.listing import list_checkpoints
from model_checkpoint.errors import CheckpointException
from model_checkpoint.integrity.checksums import FilePath
from model_checkpoint.integrity.journal import Journal
from model_checkpoint.storage import LocalStore, open_store
from model_checkpoint.storage.locate import Root

log = logging.getLogger("model_checkpoint.integrity")

MEMORY_NAME = ".scrubbed.jsonl"


class CheckpointCatalog(Protocol):
    """Where records of checkpoints come from, and verdicts go.

    A record has ``id`` and either ``root`` and ``name``, or ``file_path``, ``file_size`` and ``checksum``.
    """

    def get_checkpoint(self, checkpoint_id: str, /) -> Any:
        """The record, or None."""
        ...

    def get_checkpoints_by_experiment(self, experiment_id: str, /) -> Sequence[Any]:
        """The records of one experiment."""
        ...

    def longest_unverified(self) -> Iterator[Any]:
        """Every record: first those never verified, then the one verified longest ago."""
        ...

    def record_integrity(self, verdict: Any, /) -> object:
        """Keep what was found, and when."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RootRecord:
    """A checkpoint of a root, as the verifier needs it."""

    id: str
    root: Any  # a path, a URL or a store
    name: str
    step: int | None
    size: int
    backend: str = "native"


class RootCatalog:
    """A root as a catalog; what was verified is remembered in ``memory``, or in the root if that is a folder.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-root-catalog", {"a": b"bytes"}, step=7)
        >>> [record.step for record in RootCatalog("memory://doc-root-catalog").longest_unverified()]
        [7]
    """

    def __init__(self, root: Root, *, memory: FilePath | None = None) -> None:
        self._store = open_store(root)
        if memory is None and isinstance(self._store, LocalStore):
            memory = f"{self._store.url}/{MEMORY_NAME}"
        self._memory = None if memory is None else Journal(memory)

    def _records(self) -> list[RootRecord]:
        return [
            RootRecord(
                id=info.id or info.prefix, root=self._store, name=info.prefix, step=info.step, size=info.size_bytes
            )
            for info in list_checkpoints(self._store)
        ]

    def get_checkpoint(self, checkpoint_id: str, /) -> RootRecord | None:
        """The record of that id, or of the folder of that name."""
        found = [one for one in self._records() if checkpoint_id in (one.id, one.name)]
        return found[0] if found else None

    def get_checkpoints_by_experiment(self, experiment_id: str, /) -> Sequence[RootRecord]:
        """All of them, if it is this root that is meant: a root holds the checkpoints of one run."""
        return self._records() if experiment_id in (self._store.url, "") else []

    def longest_unverified(self) -> Iterator[RootRecord]:
        """First those never verified, newest first; then the others, by when they were."""
        turns = {key: turn for turn, key in enumerate(self._known())}
        return iter(sorted(self._records(), key=lambda one: turns.get(_key(one.name, one.id), -1)))

    def _known(self) -> Mapping[str, Any]:
        try:
            return {} if self._memory is None else self._memory.read()
        except CheckpointException as error:
            log.warning("it is not known what was verified before: %s", error)
            return {}

    def record_integrity(self, verdict: Any, /) -> None:
        """Remember it; a root that cannot be written to is verified all the same, only from its beginning each time."""
        if self._memory is None:
            return
        name = verdict.path.rpartition("/")[2]
        told = {"outcome": verdict.outcome.value, "at": verdict.checked_at}
        try:
            self._memory.write({_key(name, verdict.checkpoint_id): told})
        except CheckpointException as error:
            log.warning("what was verified cannot be remembered: %s", error)

    def forget_deleted(self) -> None:
        """Let go of what is remembered of checkpoints that are gone or were replaced."""
        if self._memory is not None:
            here = {_key(one.name, one.id) for one in self._records()}
            self._memory.change(lambda known: dict.fromkeys(known.keys() - here))


def _key(name: str, identity: str) -> str:
    return f"{name} {identity}"
