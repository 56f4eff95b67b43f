"""Checkpoint index: rows written, read and marked; kept in a spool while the database cannot be reached.

A database that is away never costs a checkpoint, nor a training run: what is committed stays, its row waits on disk,
and is recorded as soon as the database answers again.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from model_checkpoint import forks
from model_checkpoint.checkpoint.catalog.best_choice import Beats, contests, criteria_of, flag_anew
from model_checkpoint.checkpoint.catalog.catalog_rows import criterion_of
from model_checkpoint.checkpoint.catalog.marked_rows import Marking, record_marking
from model_checkpoint.checkpoint.catalog.removed_rows import Removal, record_removal
from model_checkpoint.checkpoint.errors import NoExperiment
from model_checkpoint.checkpoint.tolerated_failures import ToleratedFailures
from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.database.errors import (
    DatabaseClosed,
    DatabaseFull,
    DatabaseUnreachable,
    RowRefused,
    SchemaOutdated,
    SchemaTooNew,
)
from model_checkpoint.database.event_records import AuditEntry
from model_checkpoint.database.records import Checkpoint, Experiment
from model_checkpoint.database.values.audit_entries import new_entry
from model_checkpoint.errors import CheckpointException, WrongReference
from model_checkpoint.tracking.spool import Spool

log = logging.getLogger("model_checkpoint.manager")

_PAUSE = 2.0  # seconds in which a database that was away is not asked again: a save must not wait for it each time
AWAY = (DatabaseUnreachable, SchemaTooNew, SchemaOutdated)  # it cannot be written to here and now


@dataclass(frozen=True, slots=True)
class Recorded:
    """What became of a row: the best flags it won, or that it waits for the database."""

    best: tuple[str, ...] = ()
    waiting: bool = False


class CheckpointIndex:
    """The catalog as a manager uses it."""

    def __init__(self, connection: EnhancedDatabaseConnection, spool: Spool, failures: ToleratedFailures) -> None:
        self.connection, self._spool, self._failures = connection, spool, failures
        self._runs: dict[str, Experiment] = {}
        self.policies: dict[str, tuple[str, ...]] = {}  # of each run the keepers that the catalog was told of
        self._criteria: dict[str, str | None] = {}  # of each run what its best metric is
        self._lock = forks.lock()
        self._behind = True  # something may wait in the spool
        self._unkept: deque[tuple[str, dict[str, Any]]] = deque()  # what not even the spool had room for
        self._away_until = 0.0

    def run(self, experiment_id: str) -> Experiment | None:
        """A run; None if there is none of that id. One that was found once is known even without the database."""
        if experiment_id not in self._runs:
            found = self.connection.get_experiment(experiment_id)
            if found is None:
                return None
            self._runs[experiment_id] = found
        return self._runs[experiment_id]

    def require_run(self, experiment_id: str) -> Experiment:
        """A run that is to get a checkpoint; while the database is away, one that nobody knows is taken on trust."""
        try:
            found = self.run(experiment_id)
        except AWAY as error:
            self.note_away(error)
            return Experiment(id=experiment_id, name=experiment_id)
        if found is None:
            raise NoExperiment(
                f"run {experiment_id!r} is not in {self.connection.database_url}. Begin it with ExperimentTracker, or "
                "check the id. Nothing was saved."
            )
        return found

    def criterion(self, experiment_id: str, best_metric: str | None) -> str | None:
        """What the best metric of a run is: what this manager was told, else what an earlier one was.

        If that is news, the flags of the run are given anew first: they would stand for two things at once.
        """
        if experiment_id not in self._criteria:
            try:
                self.require_near()
                self._criteria[experiment_id] = self._agreed(experiment_id, best_metric)
            except AWAY as error:
                self.note_away(error)
                return best_metric
        return self._criteria[experiment_id]

    def _agreed(self, experiment_id: str, best_metric: str | None) -> str | None:
        newest = self.connection.latest(experiment_id)
        before = None if newest is None else criterion_of(newest)
        if best_metric is None:
            return before
        if newest is not None and before != best_metric:
            flag_anew(self.connection, experiment_id, criteria_of(newest, best_metric))
        return best_metric

    def record(
        self,
        row: Checkpoint,
        run: Experiment,
        *,
        best_metric: str | None = None,
        timing: Mapping[str, Any] | None = None,
    ) -> Recorded:
        """Write the row of a save, its flags, edge and audit entry; keep it on disk if the database is away."""
        details = {"name": row.name, "step": row.step, "bytes": row.file_size, "timing": dict(timing or {})}
        entry = new_entry("save", row.id, details=details)
        try:
            self.require_near()
            return Recorded(best=self._write(row, run, contests(row, best_metric), entry))
        except AWAY as error:
            self.note_away(error)
            options = {"best_metric": best_metric, "entry": dataclasses.asdict(entry)}
            self._keep("checkpoint", {"row": dataclasses.asdict(row), "run": dataclasses.asdict(run), **options})
            return Recorded(waiting=True)

    def _write(
        self, row: Checkpoint, run: Experiment, beats: Mapping[str, Beats], entry: AuditEntry
    ) -> tuple[str, ...]:
        """Write it; a run that waits in a spool itself, since the database was away when it began, is written first."""
        try:
            return self.connection.record_saved(row, beats=beats, entry=entry)
        except RowRefused:
            if self.connection.get_experiment(run.id) is not None or run.id not in self._runs:
                raise
            self.connection.save_experiment(run)
            return self.connection.record_saved(row, beats=beats, entry=entry)

    def record_removal(self, removal: Removal, *, durable: bool = True) -> None:
        """Let the catalog know what went; kept for later if it was not written down before, or there is no room."""
        try:
            if not removal.intent:
                self.require_near()
            record_removal(self.connection, removal, durable=durable)
        except AWAY as error:
            if removal.intent and not isinstance(error, DatabaseFull):  # it is found open, and carried on with
                raise
            self.note_away(error)
            self._keep("removal", removal.as_record())

    def record_marking(self, row: Checkpoint, marking: Marking) -> Checkpoint:
        """Let the catalog know what was marked in the root; kept for later if the database is away."""
        entry = new_entry(marking.action, row.id)
        try:
            self.require_near()
            return record_marking(self.connection, row.id, marking, entry)
        except AWAY as error:
            self.note_away(error)
            self._keep("marking", {"marking": dataclasses.asdict(marking), "entry": dataclasses.asdict(entry)})
            return marking.of(row)

    def removed(self, checkpoint_ids: Collection[str]) -> set[str]:
        """Those of these that managers have removed; none while nobody can say."""
        try:
            return self.connection.removed(checkpoint_ids)
        except AWAY as error:
            self.note_away(error)
            return set()

    def know(self, run: Experiment) -> None:
        """Take a run from its tracker, which knows it even if the database does not yet."""
        self._runs.setdefault(run.id, run)

    def audit(self, action: str, subject: str, *, outcome: str = "ok", **details: Any) -> None:
        """Add one entry to the audit trail."""
        entry = new_entry(action, subject, outcome=outcome, details=details)
        try:
            self.require_near()
            self.connection.add_audit(entry)
        except AWAY as error:
            self.note_away(error)
            self._keep("audit", dataclasses.asdict(entry))

    def forget(self, checkpoint_id: str) -> None:
        """Remove a row that must not be there; it is not there if the database is away."""
        try:
            self.connection.forget_checkpoint(checkpoint_id)
        except AWAY as error:
            self.note_away(error)

    def close(self) -> None:
        """Leave what waits for the database to whoever comes next."""
        self._spool.close()

    def note_away(self, error: Exception) -> None:
        """Count that the database was away, and leave it alone for a moment."""
        self._failures.note("database", error)
        if isinstance(error, AWAY):
            self._away_until = time.monotonic() + _PAUSE

    def _keep(self, kind: str, payload: dict[str, Any]) -> None:
        self._behind = True
        try:
            self._spool.put(kind, payload)
        except CheckpointException as error:
            self._failures.note("spool", error)
            self._unkept.append((kind, payload))
            log.error("a row could not be kept on disk, only in memory; else `mckpt reindex` makes it right: %s", error)

    def require_near(self) -> None:
        """Raise at once if the database was away a moment ago; bring along what waits for it."""
        if time.monotonic() < self._away_until:
            raise DatabaseUnreachable(f"{self.connection.database_url}: was away a moment ago; not asked again yet.")
        if self._behind:
            with self._lock:
                if self._behind:
                    self._replay()

    def catch_up(self) -> None:
        """Ask the database again at once: what was in its way may be gone."""
        if not self._unkept:
            return
        self._away_until = 0.0
        try:
            self.require_near()
        except (*AWAY, DatabaseClosed) as error:
            self.note_away(error)

    def _replay(self) -> int:
        done = self._spool.replay(self._apply, refusals=(RowRefused,)) + self._replay_unkept()
        self._behind = False
        if done:
            log.info("%s: recorded %d rows that had waited", self.connection.database_url, done)
        return done

    def _replay_unkept(self) -> int:
        done = 0
        while self._unkept:
            kind, payload = self._unkept[0]
            try:
                self._apply(kind, payload)
            except RowRefused as error:
                log.error("a row that waited in memory is refused: %s", error)
            self._unkept.popleft()
            done += 1
        return done

    def _apply(self, kind: str, payload: Mapping[str, Any]) -> None:
        if kind == "audit":
            self.connection.add_audit(_late(payload))
            return
        if kind == "removal":
            removal = Removal.of_record(payload)
            record_removal(self.connection, dataclasses.replace(removal, entry=_late(payload["entry"])))
            return
        if kind == "marking":
            self._apply_marking(payload)
            return
        run, row = Experiment(**payload["run"]), Checkpoint(**payload["row"])
        self.know(run)
        beats = contests(row, payload["best_metric"]) if payload.get("update_best", True) else {}
        self._write(
            row, run, beats, _late(payload.get("entry") or {"action": "save", "subject": row.id, "details": {}})
        )

    def _apply_marking(self, payload: Mapping[str, Any]) -> None:
        marking, entry = Marking(**payload["marking"]), _late(payload["entry"])
        try:
            record_marking(self.connection, entry.subject, marking, entry)
        except WrongReference as error:  # its row went meanwhile; the mark is in the root
            raise RowRefused(f"{marking.action} of {entry.subject}: {error}") from error


def _late(entry: Mapping[str, Any]) -> AuditEntry:
    """An entry that waited, of its own moment and process; one that an earlier version kept does not know these."""
    now = dataclasses.asdict(new_entry(entry["action"], entry["subject"]))
    return AuditEntry(**{**now, **entry, "details": {**entry["details"], "late": True}})
