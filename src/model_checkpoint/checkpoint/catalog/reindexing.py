"""Reindexing: the catalog of a root built anew from its manifests; losing the database loses no checkpoint.

Rows that are there stay as they are where the root says nothing else; rows whose folder is gone are marked deleted, and
only those: what cannot be read, and what was saved meanwhile, stays. Pins, tags and notes are those of the root. A run
that nobody tracked gets its beginning, its steps and its curves from its checkpoints. Best flags are decided anew.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from model_checkpoint.checkpoint.catalog.best_choice import criteria_of, flag_anew, measures_of
from model_checkpoint.checkpoint.catalog.catalog_rows import row_of, run_of
from model_checkpoint.database.records import DELETED, Checkpoint, CheckpointName, Experiment, Metric
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

if TYPE_CHECKING:  # who calls has it
    from model_checkpoint.database.local.catalog_writer import CatalogWriter

log = logging.getLogger("model_checkpoint.reindex")

_AT_ONCE = 500
_KEPT = ("health", "verified_at", "is_best_loss", "is_best_val_loss", "is_best_metric")  # the catalog alone knows
_UNTRACKED = "unknown"  # the status of a run that is known by its checkpoints alone


@dataclass(frozen=True, slots=True, kw_only=True)
class ReindexReport:
    """What was found: checkpoints recorded, of how many runs; rows without a folder; folders that cannot be read.

    ``added`` of the checkpoints were not in the catalog. After a ``dry_run`` it is what would be done.
    """

    root: str
    checkpoints: int = 0
    added: int = 0
    runs: int = 0
    gone: int = 0
    unreadable: tuple[tuple[str, str], ...] = ()
    dry_run: bool = False

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        verb = "to be recorded" if self.dry_run else "recorded"
        counts = f"{self.checkpoints} checkpoints of {self.runs} runs {verb}, {self.gone} rows without a folder"
        return html_table(f"{self.root}: {counts}", ["cannot be read", "why"], self.unreadable)


@dataclass(slots=True)
class _Seen:
    """What was met in the root so far."""

    runs: dict[str, set[str]] = field(default_factory=dict)  # the ids of each run
    names: set[str] = field(default_factory=set)
    unreadable: dict[str, str] = field(default_factory=dict)  # names, and why
    added: int = 0

    def ids(self) -> set[str]:
        """Of all runs."""
        return {id for some in self.runs.values() for id in some}


def reindex(
    root: Root,
    connection: CatalogWriter,
    *,
    best_metric: str | None = None,
    names: Collection[str] | None = None,
    dry_run: bool = False,
    progress: Listen = None,
) -> ReindexReport:
    """Build the rows of every checkpoint in ``root`` from its manifest, or of those ``names`` alone.

    ``best_metric`` decides the flag of the best metric; without it what the newest checkpoint was saved with.
    ``dry_run`` only tells what would be done. ``progress`` is called as checkpoints are recorded; True shows a bar.

    Example:
        >>> import model_checkpoint as mc
        >>> from model_checkpoint.database import EnhancedDatabaseConnection
        >>> _ = mc.save("memory://doc-reindex", {"a": 1}, step=1, metrics={"val_loss": 0.5})
        >>> with EnhancedDatabaseConnection("sqlite://") as db:
        ...     report = reindex("memory://doc-reindex", db)
        ...     run = db.list_experiments().items[0]
        ...     report.checkpoints, run.name, db.latest(run.id).val_loss
        (1, 'doc-reindex', 0.5)
    """
    store = open_store(root)
    if dry_run:
        return _reindexed(store, connection, None, names, progress, dry_run=True)
    try:
        report = _reindexed(store, connection, best_metric, names, progress)
    except Exception as error:
        _note_failure(store, connection, error)
        raise
    told = {name: getattr(report, name) for name in ("checkpoints", "added", "runs", "gone")}
    connection.record_audit("reindex", store.url, details=told)
    log.info("%s: reindexed %d checkpoints of %d runs", store.url, report.checkpoints, report.runs)
    return report


def _note_failure(store: Store, connection: CatalogWriter, error: Exception) -> None:
    details = {"error": f"{type(error).__name__}: {error}"}
    try:
        connection.record_audit("reindex", store.url, outcome="failed", details=details)
    except CheckpointException as second:  # what failed first is what must be told
        log.warning("%s: the audit trail could not be told that it was not reindexed: %s", store.url, second)


def _reindexed(
    store: Store,
    connection: CatalogWriter,
    best_metric: str | None,
    names: Collection[str] | None,
    progress: Listen,
    *,
    dry_run: bool = False,
) -> ReindexReport:
    require_root(store)
    marks, seen = read_marks(store), _Seen()
    looked_at = store.entries() if names is None else names
    with listening(progress, "reindexing") as emit:
        meter = Meter("reindex", len(looked_at), emit, unit="checkpoints")
        for some in _batches(_found(store, looked_at, seen, meter)):
            rows = _rows(store, connection, some, marks, seen)
            if not dry_run:
                _write(connection, rows, {run.id: run for info, _ in some for run in [run_of(info) or _home(store)]})
    gone = _gone(store, connection, seen) if names is None else []  # else nobody looked at the others
    if not dry_run:
        for row in gone:
            connection.mark_deleted(row.id)
        for run in {*seen.runs, *(row.run for row in gone)}:
            _flag(connection, run, best_metric)
    return ReindexReport(
        root=store.url,
        checkpoints=len(seen.ids()),
        added=seen.added,
        runs=len(seen.runs),
        gone=len(gone),
        unreadable=tuple(sorted(seen.unreadable.items())),
        dry_run=dry_run,
    )


def _found(store: Store, names: Collection[str], seen: _Seen, meter: Meter) -> Iterator[tuple[CheckpointInfo, Summary]]:
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
            seen.unreadable[name] = str(error)
            continue
        seen.names.add(name)
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
    connection: CatalogWriter,
    found: Sequence[tuple[CheckpointInfo, Summary]],
    marks: Mapping[str, Marks],
    seen: _Seen,
) -> list[Checkpoint]:
    """The rows as they should be, by the root and by what only the catalog knows."""
    home = _home(store)
    known = {row.id: row for row in connection.get_checkpoints([info.id for info, _ in found])}
    rows = []
    for info, summary in found:
        row, old = row_of(info, summary, root=store.url, run=home), known.get(info.id)
        if old is not None and old.state == DELETED and not store.has(row.name):
            continue  # removed while we were looking
        rows.append(_kept(_marked(row, old, marks.get(row.id, NO_MARKS)), old))
        seen.runs.setdefault(row.experiment_id, set()).add(row.id)
        seen.added += old is None
    return rows


def _marked(row: Checkpoint, old: Checkpoint | None, marks: Marks) -> Checkpoint:
    """With the marks of the root; what a save gave it, and somebody took off since, stays off."""
    given, notes = row.tags, row.notes
    if old is not None:
        given, notes = tuple(tag for tag in given if tag in old.tags), notes if old.notes else ""
    doubtful = old if old is not None and marks.unreadable else None  # marks that cannot be read are not gone
    return dataclasses.replace(
        row,
        pinned=marks.pinned or (doubtful is not None and doubtful.pinned),
        tags=tuple(dict.fromkeys((*given, *marks.tags, *(doubtful.tags if doubtful else ())))),
        notes=marks.note or (doubtful.notes if doubtful else notes),
    )


def _kept(row: Checkpoint, old: Checkpoint | None) -> Checkpoint:
    kept = {name: getattr(old, name) for name in _KEPT if getattr(old, name, None)}
    return dataclasses.replace(row, **kept)


def _write(connection: CatalogWriter, rows: Sequence[Checkpoint], runs: Mapping[str, Experiment]) -> None:
    """Rows, their runs first; of those that nobody tracked what their checkpoints tell of them, too."""
    by_run: dict[str, list[Checkpoint]] = {}
    for row in rows:
        by_run.setdefault(row.experiment_id, []).append(row)
    there = {id: connection.get_experiment(id) or connection.save_experiment(runs[id]) for id in by_run}
    connection.save_checkpoints(rows)
    for id, some in by_run.items():
        dated = [row for row in some if row.created_at]
        if there[id].status == _UNTRACKED and dated:
            _tell_run(connection, there[id], dated)


def _tell_run(connection: CatalogWriter, run: Experiment, rows: Sequence[Checkpoint]) -> None:
    """When a run began and how far it came, and points of what was measured at each checkpoint; twice is once."""
    connection.write_metrics(
        Metric(run.id, name, float(value), row.step, row.created_at)
        for row in rows
        for name, value in measures_of(row).items()
        if isinstance(value, (int, float))
    )
    began = min([row.created_at for row in rows] + [run.start_time] * (run.start_time > 0))
    last = max(rows, key=lambda row: (row.step, row.created_at))
    connection.update_experiment(run.id, start_time=began, step=max(run.step, last.step))
    if last.created_at > (run.last_step_at or 0.0):
        connection.heartbeat(run.id, step=max(run.step, last.step), at=last.created_at)


def _home(store: Store) -> Experiment:
    """The run of checkpoints that were saved without a manager: the root itself."""
    name = os.path.basename(store.url.rstrip("/")) or store.url
    return Experiment(id=uuid.uuid5(uuid.NAMESPACE_URL, store.url).hex, name=name, status=_UNTRACKED, start_time=0.0)


def _gone(store: Store, connection: CatalogWriter, seen: _Seen) -> list[CheckpointName]:
    """Rows of this root, of whatever run, whose folder is no more or holds another checkpoint."""
    ids = seen.ids()
    lost = [row for row in connection.names_in(store.url) if row.id not in ids and row.name not in seen.unreadable]
    return [row for row in lost if row.name in seen.names or not store.has(row.name)]  # it may be just saved


def _flag(connection: CatalogWriter, run: str, best_metric: str | None) -> None:
    newest = connection.latest(run)
    if newest is not None:
        flag_anew(connection, run, criteria_of(newest, best_metric))
