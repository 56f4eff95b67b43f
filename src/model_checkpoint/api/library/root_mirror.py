"""Root mirror: plain roots as a catalog in a file of our own, kept up to date with what is on disk.

The roots themselves are only read. What a manifest says becomes a row, its metrics become points (a reindex does both),
so that a plain root has curves too; what cannot be read becomes a row that says so.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from model_checkpoint import forks
from model_checkpoint.checkpoint.catalog.reindexing import reindex
from model_checkpoint.checkpoint.catalog.removed_rows import mark_gone
from model_checkpoint.database import (
    Checkpoint,
    CheckpointSearch,
    EnhancedDatabaseConnection,
    Experiment,
    IntegrityRecord,
)
from model_checkpoint.engine.root.marks import NO_MARKS, Marks, read_marks
from model_checkpoint.errors import CheckpointException
from model_checkpoint.integrity.journal import Journal
from model_checkpoint.integrity.root_catalog import MEMORY_NAME
from model_checkpoint.plan import told_step
from model_checkpoint.storage import InMemoryStore, LocalStore, Store, open_store

log = logging.getLogger("model_checkpoint.api")

_AT_ONCE = 5000  # rows
_LOCAL_SECONDS, _REMOTE_SECONDS = 1.0, 15.0  # between two looks at a root


class _Mirrored:
    """One root, and what of it was mirrored last."""

    def __init__(self, root: str) -> None:
        self.store: Store = open_store(root)
        self.names: frozenset[str] | None = None
        self.marks: Mapping[str, Marks] = {}
        self.looked = float("-inf")
        self.local = isinstance(self.store, (LocalStore, InMemoryStore))
        self.pause = _LOCAL_SECONDS if self.local else _REMOTE_SECONDS
        on_disk = isinstance(self.store, LocalStore)
        self.verified = Journal(f"{self.store.url}/{MEMORY_NAME}") if on_disk else None


class RootMirror:
    """Mirrors roots into one catalog.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-mirror", {"a": 1}, step=1, metrics={"val_loss": 0.5})
        >>> with EnhancedDatabaseConnection("sqlite://") as db:
        ...     RootMirror(db).refresh(["memory://doc-mirror"])
        ...     run = db.overviews()[0]
        ...     run.experiment.name, run.newest.step, db.summaries(run.experiment.id)[0].last
        ('doc-mirror', 1, 0.5)
    """

    def __init__(self, connection: EnhancedDatabaseConnection) -> None:
        self._connection = connection
        self._roots: dict[str, _Mirrored] = {}
        self._lock = forks.lock()

    def refresh(self, roots: list[str] | tuple[str, ...]) -> None:
        """Bring the rows of these roots up to date, as far as they were not looked at a moment ago."""
        with self._lock:
            for root in roots:
                mirrored = self._roots.setdefault(root, _Mirrored(root))
                if time.monotonic() - mirrored.looked < mirrored.pause:
                    continue
                mirrored.looked = time.monotonic()
                if mirrored.local or mirrored.names is None:
                    self._try_to_look(mirrored)
                else:  # a bucket may take its time: meanwhile what is known of it is shown
                    name = "mckpt-mirror"
                    threading.Thread(target=self._try_to_look, args=(mirrored,), name=name, daemon=True).start()

    def _try_to_look(self, root: _Mirrored) -> None:
        try:
            self._look(root)
        except CheckpointException as error:
            log.warning("%s: cannot be looked at: %s", root.store.url, error)
        root.looked = time.monotonic()

    def _look(self, root: _Mirrored) -> None:
        names = frozenset(root.store.entries()) if root.store.exists() else frozenset()
        marks = read_marks(root.store)
        known = root.names or frozenset()
        if names - known:
            self._mirror(root.store, names - known)
        if known - names:
            self._drop(root.store, names)
        if names != root.names or marks != root.marks:
            self._mark(root.store, marks)
        self._tell_verified(root)
        root.names, root.marks = names, marks

    def _mirror(self, store: Store, fresh: frozenset[str]) -> None:
        report = reindex(store, self._connection, names=fresh)
        for name, problem in report.unreadable:
            self._connection.save_checkpoint(self._unreadable(store, name, problem))

    def _rows(self, store: Store) -> list[Checkpoint]:
        search, found = CheckpointSearch(root=store.url), list[Checkpoint]()
        page = self._connection.search_checkpoints(search, limit=_AT_ONCE)
        found += page.items
        while page.next:
            page = self._connection.search_checkpoints(search, limit=_AT_ONCE, after=page.next)
            found += page.items
        return found

    def _drop(self, store: Store, names: frozenset[str]) -> None:
        for row in self._rows(store):
            if row.name not in names:
                mark_gone(self._connection, row.id)

    def _mark(self, store: Store, marks: Mapping[str, Marks]) -> None:
        for row in self._rows(store):
            mine = marks.get(row.id, NO_MARKS)
            wanted: dict[str, Any] = {"pinned": mine.pinned, "tags": list(mine.tags), "notes": mine.note}
            if (row.pinned, list(row.tags), row.notes) != tuple(wanted.values()):
                self._connection.update_checkpoint(row.id, **wanted)

    def _unreadable(self, store: Store, name: str, problem: str) -> Checkpoint:
        """A row that says that its manifest cannot be used."""
        home = Experiment(
            id=uuid.uuid5(uuid.NAMESPACE_URL, store.url).hex,
            name=os.path.basename(store.url.rstrip("/")) or store.url,
            status="unknown",
            start_time=0.0,
        )
        if self._connection.get_experiment(home.id) is None:
            self._connection.save_experiment(home)
        return Checkpoint(
            id=uuid.uuid5(uuid.NAMESPACE_URL, f"{store.url}/{name}").hex,
            experiment_id=home.id,
            step=told_step(name) or 0,
            file_path=f"{store.url}/checkpoints/{name}",
            file_size=sum(store.files(name).values()),
            metadata={"problem": problem},
            created_at=0.0,
            name=name,
            root=store.url,
            health="damaged",
        )

    def _tell_verified(self, root: _Mirrored) -> None:
        """What `mckpt verify` remembers in a root, as far as it is news."""
        if root.verified is None:
            return
        try:
            known = root.verified.read()
        except CheckpointException as error:
            log.warning("%s: it is not known what was verified: %s", root.store.url, error)
            return
        there = {row.id: row for row in self._connection.get_checkpoints(sorted(known))}
        for id, told in known.items():
            row = there.get(id)
            if row is not None and told["at"] > (row.verified_at or 0.0):
                record = IntegrityRecord(checkpoint_id=id, outcome=told["outcome"], checked_at=told["at"])
                self._connection.record_integrity(dataclasses.replace(record, details={"path": row.file_path}))
