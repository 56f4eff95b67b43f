"""Reindexing: the catalog of a root built anew from its manifests; losing the database loses no checkpoint.

Rows that are there stay as they are where the manifest says nothing else; rows whose folder is gone are marked deleted;
pins and tags come from the marks in the root; best flags are decided anew.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from model_checkpoint.checkpoint.catalog.best_choice import all_rows, criteria_of, flag_anew
from model_checkpoint.checkpoint.catalog.catalog_rows import row_of, run_of
from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.database.records import Checkpoint, Experiment
from model_checkpoint.engine.common.info import CheckpointInfo, info_of, path_of
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.root.listing import require_root
from model_checkpoint.engine.root.marks import NO_MARKS, Marks, read_marks
from model_checkpoint.errors import CheckpointException, CheckpointNotFound
from model_checkpoint.manifest import Summary, decode_summary
from model_checkpoint.notebook_html import html_table
from model_checkpoint.storage.contract.store import Store, read_manifests
from model_checkpoint.storage.locate import Root, open_store

log = logging.getLogger("model_checkpoint.reindex")

_AT_ONCE = 500
_KEPT = ("notes", "pinned", "tags", "health", "verified_at", "is_best_loss", "is_best_val_loss", "is_best_metric")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReindexReport:
    """What was found: checkpoints recorded, of how many runs; rows without a folder; folders that cannot be read."""

    root: str
    checkpoints: int = 0
    runs: int = 0
    gone: int = 0
    unreadable: tuple[tuple[str, str], ...] = ()

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        counts = f"{self.checkpoints} checkpoints of {self.runs} runs recorded, {self.gone} rows without a folder"
        return html_table(f"{self.root}: {counts}", ["cannot be read", "why"], self.unreadable)


def reindex(
    root: Root,
    connection: EnhancedDatabaseConnection,
    *,
    best_metric: str | None = None,
    names: Collection[str] | None = None,
    progress: Listen = None,
) -> ReindexReport:
    """Build the rows of every checkpoint in ``root`` from its manifest, or of those ``names`` alone.

    ``progress`` is called as checkpoints are recorded; True shows a bar.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-reindex", {"a": 1}, step=1, metrics={"val_loss": 0.5})
        >>> with EnhancedDatabaseConnection("sqlite://") as db:
        ...     report = reindex("memory://doc-reindex", db)
        ...     run = db.list_experiments().items[0]
        ...     report.checkpoints, run.name, db.latest(run.id).val_loss
        (1, 'doc-reindex', 0.5)
    """
    store = open_store(root)
    try:
        report = _reindexed(store, connection, best_metric, names, progress)
    except Exception as error:
        _note_failure(store, connection, error)
        raise
    told = {"checkpoints": report.checkpoints, "runs": report.runs, "gone": report.gone}
    connection.record_audit("reindex", store.url, details=told)
    log.info("%s: reindexed %d checkpoints of %d runs", store.url, report.checkpoints, report.runs)
    return report


def _note_failure(store: Store, connection: EnhancedDatabaseConnection, error: Exception) -> None:
    details = {"error": f"{type(error).__name__}: {error}"}
    try:
        connection.record_audit("reindex", store.url, outcome="failed", details=details)
    except CheckpointException as second:  # what failed first is what must be told
        log.warning("%s: the audit trail could not be told that it was not reindexed: %s", store.url, second)


def _reindexed(
    store: Store,
    connection: EnhancedDatabaseConnection,
    best_metric: str | None,
    names: Collection[str] | None,
    progress: Listen,
) -> ReindexReport:
    require_root(store)
    marks, unreadable = read_marks(store), list[tuple[str, str]]()
    seen: dict[str, set[str]] = {}
    looked_at = store.entries() if names is None else names
    with listening(progress, "reindexing") as emit:
        meter = Meter("reindex", len(looked_at), emit, unit="checkpoints")
        for some in _batches(_found(store, looked_at, unreadable, meter)):
            rows = _rows(store, connection, some, marks)
            connection.save_checkpoints(rows)
            for row in rows:
                seen.setdefault(row.experiment_id, set()).add(row.id)
    whole = names is None  # else nobody looked at the others
    gone = sum(_mark_gone(store, connection, run, ids) for run, ids in seen.items()) if whole else 0
    for run in seen:
        _flag(connection, run, best_metric)
    count = sum(map(len, seen.values()))
    return ReindexReport(root=store.url, checkpoints=count, runs=len(seen), gone=gone, unreadable=tuple(unreadable))


def _found(
    store: Store, names: Collection[str], unreadable: list[tuple[str, str]], meter: Meter
) -> Iterator[tuple[CheckpointInfo, Summary]]:
    """Each checkpoint whose manifest can be read; what cannot be is noted."""
    for name, data in read_manifests(store, sorted(names)):
        meter.add(1)
        try:
            if isinstance(data, CheckpointException):
                raise data
            summary = decode_summary(data, path_of(store, name))
        except CheckpointNotFound:
            continue  # no checkpoint, or deleted since
        except CheckpointException as error:
            unreadable.append((name, str(error)))
            continue
        yield dataclasses.replace(info_of(store, summary), prefix=name, path=path_of(store, name)), summary


def _batches(
    found: Iterable[tuple[CheckpointInfo, Summary]],
) -> Iterator[list[tuple[CheckpointInfo, Summary]]]:
    some: list[tuple[CheckpointInfo, Summary]] = []
    for one in found:
        some.append(one)
        if len(some) == _AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _rows(
    store: Store,
    connection: EnhancedDatabaseConnection,
    found: Sequence[tuple[CheckpointInfo, Summary]],
    marks: Mapping[str, Marks],
) -> list[Checkpoint]:
    """Rows, their runs recorded first; what only the catalog knows of them stays."""
    home = _home(store)
    runs = {run.id: run for info, _ in found for run in [run_of(info) or home]}
    for run in runs.values():
        if connection.get_experiment(run.id) is None:
            connection.save_experiment(run)
    known = {row.id: row for row in connection.get_checkpoints([info.id for info, _ in found])}
    rows = []
    for info, summary in found:
        row = row_of(info, summary, root=store.url, run=home)
        mine = marks.get(row.id, NO_MARKS)
        row = dataclasses.replace(
            row, pinned=mine.pinned, tags=tuple(dict.fromkeys((*row.tags, *mine.tags))), notes=row.notes or mine.note
        )
        old = known.get(row.id)
        rows.append(row if old is None else _kept(row, old))
    return rows


def _kept(row: Checkpoint, old: Checkpoint) -> Checkpoint:
    kept = {name: getattr(old, name) for name in _KEPT if getattr(old, name)}
    return dataclasses.replace(row, **kept)


def _home(store: Store) -> Experiment:
    """The run of checkpoints that were saved without a manager: the root itself."""
    name = os.path.basename(store.url.rstrip("/")) or store.url
    return Experiment(id=uuid.uuid5(uuid.NAMESPACE_URL, store.url).hex, name=name, status="unknown", start_time=0.0)


def _mark_gone(store: Store, connection: EnhancedDatabaseConnection, run: str, seen: set[str]) -> int:
    """Mark rows of this root whose folder is no more."""
    lost = [row.id for row in all_rows(connection, run) if row.root == store.url and row.id not in seen]
    for id in lost:
        connection.delete_checkpoint(id)
    return len(lost)


def _flag(connection: EnhancedDatabaseConnection, run: str, best_metric: str | None) -> None:
    newest = connection.latest(run)
    if newest is not None:
        flag_anew(connection, run, criteria_of(newest, best_metric))
