"""Run overviews: every run with what its checkpoints come to; and a pulse by which a change is noticed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Label, ScalarSelect, Select, Text, case, cast, func, or_, select

from model_checkpoint.database.catalog.catalog_part import AT_ONCE, CatalogPart, batched, in_lists
from model_checkpoint.database.models import (
    CheckpointRow,
    ExperimentRow,
    HeartbeatRow,
    MetricKeyRow,
    MetricSummaryRow,
    table_of,
)
from model_checkpoint.database.records import COMMITTED, UNSAFE, CheckpointMark, RunHead, RunOverview, RunPulse
from model_checkpoint.database.values.row_records import overview_of

_runs, _beats = table_of(ExperimentRow), table_of(HeartbeatRow)
_points, _keys, _rows = table_of(MetricSummaryRow), table_of(MetricKeyRow), table_of(CheckpointRow)
_UNIQUE = func.coalesce(_rows.c.unique_bytes, _rows.c.file_size)


class RunOverviewCatalog(CatalogPart):
    """Runs at a glance."""

    def overviews(self, experiment_ids: Collection[str] | None = None) -> list[RunOverview]:
        """Every run, or these, each with its newest and newest safe checkpoint, their number and bytes.

        Example:
            >>> from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1", step=7, file_size=10))
            ...     [(one.experiment.id, one.checkpoints, one.newest.step) for one in db.overviews()]
            [('r1', 1, 7)]
        """

        def work(connection: Connection) -> list[RunOverview]:
            wanted = [None] if experiment_ids is None else batched(dict.fromkeys(experiment_ids), AT_ONCE)
            statements = [_overview_statement(some) for some in wanted]
            found = [row for one in statements for row in connection.execute(one).mappings()]
            marks = _marks(connection, {row[name] for row in found for name in ("newest_id", "safe_id") if row[name]})
            return [overview_of(row, marks) for row in found]

        return self._read(work)

    def run_heads(self, experiment_ids: Collection[str] | None = None) -> dict[str, RunHead]:
        """What these runs are called, or all, and the id of the newest checkpoint of each.

        Example:
            >>> from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1", step=7))
            ...     db.run_heads(["r1"])
            {'r1': RunHead(name='baseline', project_name='default', newest='c1')}
        """
        statement = select(_runs.c.id, _runs.c.name, _runs.c.project_name, _newest().label("newest_id"))
        ids = None if experiment_ids is None else dict.fromkeys(experiment_ids)

        def work(connection: Connection) -> dict[str, RunHead]:
            rows: Iterable[Any] = (
                connection.execute(statement) if ids is None else in_lists(connection, statement, _runs.c.id, ids)
            )
            return {row.id: RunHead(row.name, row.project_name, row.newest_id) for row in rows}

        return self._read(work)

    def metric_names(self) -> list[str]:
        """The names of all metrics that were ever measured.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.metric_names()
            []
        """
        statement = select(_keys.c.name).order_by(_keys.c.name)
        return self._read(lambda connection: list(connection.execute(statement).scalars()))

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


def _newest(*conditions: Any) -> ScalarSelect[Any]:
    """The id of the newest checkpoint of a run that satisfies the conditions; an index finds it."""
    column = _rows.c
    own = (column.experiment_id == _runs.c.id, column.state == COMMITTED, *conditions)
    order = (column.step.desc(), column.created_at.desc(), column.id.desc())
    return select(column.id).where(*own).order_by(*order).limit(1).correlate(_runs).scalar_subquery()


def _overview_statement(runs: Sequence[str] | None) -> Select[Any]:
    column = _rows.c
    wanted = [] if runs is None else [column.experiment_id.in_(runs)]
    totals = (
        select(
            column.experiment_id.label("run"),
            func.count().label("checkpoints"),
            func.sum(column.file_size).label("total_bytes"),
            func.sum(_UNIQUE).label("unique_bytes"),
        )
        .where(column.state == COMMITTED, *wanted)
        .group_by(column.experiment_id)
        .subquery()
    )
    heard = (_beats.c.last_seen, _beats.c.last_step_at, _beats.c.step.label("heard_step"))
    safe = _newest(column.health.not_in(UNSAFE))
    sums = (totals.c.checkpoints, totals.c.total_bytes, totals.c.unique_bytes)
    return (
        select(_runs, *heard, *sums, _newest().label("newest_id"), safe.label("safe_id"))
        .outerjoin(_beats, _beats.c.experiment == _runs.c.number)
        .outerjoin(totals, totals.c.run == _runs.c.id)
        .where(*([] if runs is None else [_runs.c.id.in_(runs)]))
        .order_by(_runs.c.start_time.desc(), _runs.c.id.desc())
    )


def _marks(connection: Connection, ids: Collection[str]) -> dict[str, CheckpointMark]:
    column = _rows.c
    statement = select(column.id, column.step, column.created_at, column.health)
    return {row.id: CheckpointMark(*row) for row in in_lists(connection, statement, column.id, sorted(ids))}


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
