"""Run pulses: of every run what moves when anything about it does, by which a change is noticed."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Label, Select, Text, case, cast, func, or_, select

from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.models import CheckpointRow, ExperimentRow, HeartbeatRow, MetricSummaryRow, table_of
from model_checkpoint.database.records import COMMITTED, UNSAFE
from model_checkpoint.database.summed_records import RunPulse

_runs, _beats = table_of(ExperimentRow), table_of(HeartbeatRow)
_points, _rows = table_of(MetricSummaryRow), table_of(CheckpointRow)


class RunPulseCatalog(CatalogPart):
    """Runs that move."""

    def pulses(self) -> dict[str, RunPulse]:
        """Of every run what moves when anything about it does; two that are equal mean that nothing changed.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     db.pulses()["r1"].points
            0
        """

        def work(connection: Connection) -> dict[str, RunPulse]:
            words: dict[str, int] = {}
            for run, *said in connection.execute(_words_statement()):
                words[run] = words.get(run, 0) ^ hash(tuple(said))
            rows = connection.execute(_pulse_statement())
            return {row.id: _pulse(row, words.get(row.id, 0)) for row in rows}

        return self._read(work)


def _pulse_statement() -> Select[Any]:
    column = _rows.c
    saved = (
        select(
            column.experiment_id.label("run"),
            func.sum(case((column.state == COMMITTED, 1), else_=0)).label("checkpoints"),
            func.max(column.created_at).label("saved_at"),
            func.max(column.deleted_at).label("deleted_at"),
            func.max(column.verified_at).label("verified_at"),
            func.sum(case((column.pinned.is_(True), 1), else_=0)).label("pinned"),
            func.sum(case((column.health.in_(UNSAFE), 1), else_=0)).label("damaged"),
        )
        .group_by(column.experiment_id)
        .subquery()
    )
    measured = (
        select(
            _points.c.experiment.label("run"),
            func.sum(_points.c.count).label("points"),
            func.max(_points.c.last_step).label("last_step"),
        )
        .group_by(_points.c.experiment)
        .subquery()
    )
    of_saved = [one for one in saved.c if one.name != "run"]
    own = (_runs.c.id, _runs.c.status, _runs.c.start_time, _runs.c.name, _runs.c.notes, _as_text(_runs.c.tags))
    heard = (_beats.c.step, _beats.c.last_seen, _beats.c.last_step_at)
    return (
        select(*own, *heard, measured.c.points, measured.c.last_step, *of_saved)
        .outerjoin(_beats, _beats.c.experiment == _runs.c.number)
        .outerjoin(measured, measured.c.run == _runs.c.number)
        .outerjoin(saved, saved.c.run == _runs.c.id)
    )


def _words_statement() -> Select[Any]:
    """The tags and notes of all checkpoints that have some, as they are stored: they are compared, not read."""
    column, tags = _rows.c, _as_text(_rows.c.tags)
    said = or_(column.notes != "", cast(column.tags, Text) != "[]")
    return select(column.experiment_id, column.id, column.notes, tags).where(column.state == COMMITTED, said)


def _as_text(column: Any) -> Label[str]:
    return cast(column, Text).label(column.name)


def _pulse(row: Any, checkpoint_words: int) -> RunPulse:
    return RunPulse(
        status=row.status,
        started=row.start_time,
        last_seen=row.last_seen,
        last_step_at=row.last_step_at,
        words=f"{row.name}\n{row.tags}\n{row.notes}",
        step=row.step,
        points=int(row.points or 0),
        last_step=None if row.last_step is None else int(row.last_step),
        checkpoints=int(row.checkpoints or 0),
        saved=(row.saved_at or 0.0, row.deleted_at or 0.0, row.verified_at or 0.0, int(row.pinned or 0)),
        damaged=int(row.damaged or 0),
        checkpoint_words=checkpoint_words,
    )
