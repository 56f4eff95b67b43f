"""Root catalog: the checkpoints of a plain root, and when each was last verified, without any database."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from model_checkpoint.database.event_records import IntegrityRecord
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.root.listing import list_checkpoints
from model_checkpoint.errors import CheckpointException
from model_checkpoint.integrity.checksums import FilePath
from model_checkpoint.integrity.journal import Journal
from model_checkpoint.storage import LocalStore, open_store
from model_checkpoint.storage.locate import Root

log = logging.getLogger("model_checkpoint.integrity")

MEMORY_NAME = ".verified.jsonl"


class VerifiedCatalog(Protocol):
    """Where records of checkpoints come from, and verdicts go; ``EnhancedDatabaseConnection`` is one."""

    def get_checkpoint(self, checkpoint_id: str, /) -> Checkpoint | None:
        """The record, or None."""
        ...

    def get_checkpoints_by_experiment(self, experiment_id: str, /) -> Sequence[Checkpoint]:
        """The records of one experiment."""
        ...

    def due_for_verification(self, *, before: float | None = None, limit: int = 100) -> Sequence[Checkpoint]:
        """Those not verified since ``before``: first those never verified, then the one verified longest ago."""
        ...

    def record_integrity(self, record: IntegrityRecord, /) -> object:
        """Keep what was found, and when."""
        ...


class RootCatalog:
    """A root as a catalog; what was verified is remembered in ``memory``, or in the root if that is a folder.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-root-catalog", {"a": b"bytes"}, step=7)
        >>> [record.step for record in RootCatalog("memory://doc-root-catalog").due_for_verification()]
        [7]
    """

    def __init__(self, root: Root, *, memory: FilePath | None = None) -> None:
        self._store = open_store(root)
        if memory is None and isinstance(self._store, LocalStore):
            memory = f"{self._store.url}/{MEMORY_NAME}"
        self._memory = None if memory is None else Journal(memory)
        self._here: set[str] = set()  # the ids that the last listing found

    def _records(self) -> list[Checkpoint]:
        found = [_record(self._store.url, info) for info in list_checkpoints(self._store)]
        self._here = {one.id for one in found}
        return found

    def get_checkpoint(self, checkpoint_id: str, /) -> Checkpoint | None:
        """The record of that id, or of the folder of that name."""
        found = [one for one in self._records() if checkpoint_id in (one.id, one.name)]
        return found[0] if found else None

    def get_checkpoints_by_experiment(self, experiment_id: str, /) -> Sequence[Checkpoint]:
        """All of them, if the root itself is named: a plain root holds the checkpoints of one run."""
        return self._records() if experiment_id == self._store.url else []

    def due_for_verification(self, *, before: float | None = None, limit: int = 100) -> Sequence[Checkpoint]:
        """First those never verified, newest first; then the others, by when they were."""
        known = self._known()
        turns = {key: turn for turn, key in enumerate(known)}  # in the order of the writes, whatever clocks say
        due = [one for one in self._records() if before is None or known.get(one.id, {"at": 0.0})["at"] < before]
        return sorted(due, key=lambda one: turns.get(one.id, -1))[:limit]

    def _known(self) -> Mapping[str, Any]:
        try:
            return {} if self._memory is None else self._memory.read()
        except CheckpointException as error:
            log.warning("it is not known what was verified before: %s", error)
            return {}

    def record_integrity(self, record: IntegrityRecord, /) -> None:
        """Remember it; a root that cannot be written to is verified all the same, only from its beginning each time."""
        if self._memory is None:
            return
        told = {"outcome": str(record.outcome), "at": record.checked_at}
        try:
            self._memory.change(lambda known: dict.fromkeys(known.keys() - self._here) | {record.checkpoint_id: told})
        except CheckpointException as error:
            log.warning("what was verified cannot be remembered: %s", error)


def _record(root: str, info: CheckpointInfo) -> Checkpoint:
    """A checkpoint of a root as a row; one that cannot be read has no id but its name."""
    return Checkpoint(
        id=info.id or info.prefix,
        experiment_id=root,
        step=0 if info.step is None else info.step,
        file_path=info.path,
        file_size=info.size_bytes,
        name=info.prefix,
        root=root,
    )
