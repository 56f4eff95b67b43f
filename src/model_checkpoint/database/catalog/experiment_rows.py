"""Experiment rows: runs, and when they were last heard of."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, Connection, Double, Select, case, insert, literal, literal_column, select

from model_checkpoint.database.catalog.catalog_part import CatalogPart, store_row
from model_checkpoint.database.catalog.paging import page_of
from model_checkpoint.database.models import ExperimentRow, HeartbeatRow, table_of
from model_checkpoint.database.records import Experiment, Page
from model_checkpoint.database.values.cursors import cursor_of
from model_checkpoint.database.values.json_values import as_mapping, as_words
from model_checkpoint.database.values.row_records import experiment_of
from model_checkpoint.errors import OptionInvalid, WrongReference

_table, _beats = table_of(ExperimentRow), table_of(HeartbeatRow)
_HEARD = {"last_seen", "last_step_at"}  # kept by `heartbeat`
_CLOCKS = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "extract(epoch from clock_timestamp())",
    "mysql": "unix_timestamp(sysdate(6))",
    "mariadb": "unix_timestamp(sysdate(6))",
}


class ExperimentCatalog(CatalogPart):
    """Runs."""

    def save_experiment(self, experiment: Experiment) -> Experiment:
        """Store a run, in place of what was stored under its id.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     db.get_experiment("r1").name
            'baseline'
        """
        row = _row(experiment)
        self._write(lambda connection: store_row(connection, _table, row, "id"))
        return experiment

    def get_experiment(self, experiment_id: str) -> Experiment | None:
        """The run of that id, or None.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     print(db.get_experiment("nobody"))
            None
        """
        return self._read(lambda connection: _found(connection, experiment_id))

    def edit_experiment(self, experiment_id: str, change: Callable[[Experiment], Experiment]) -> Experiment:
        """Replace a run by what ``change`` makes of it, with nobody else in between; ``change`` may run twice.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     db.edit_experiment("r1", lambda e: dataclasses.replace(e, tags=[*e.tags, "good"])).tags
            ['good']

        Raises:
            WrongReference: There is no such run.
        """

        def work(connection: Connection) -> Experiment:
            there = _found(connection, experiment_id, lock=True)
            if there is None:
                raise WrongReference(f"experiment {experiment_id!r} is not in the catalog.")
            after = change(there)
            if after.id != experiment_id:
                raise OptionInvalid(f"experiment {experiment_id!r}: its id cannot be changed.")
            connection.execute(_table.update().where(_table.c.id == experiment_id).values(_row(after)))
            return after

        return self._write(work)

    def update_experiment(self, experiment_id: str, **fields: Any) -> Experiment:
        """Change some fields of a run.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     db.update_experiment("r1", status="completed").status
            'completed'

        Raises:
            WrongReference: There is no such run.
            OptionInvalid: There is no such field.
        """
        known = {field.name for field in dataclasses.fields(Experiment)} - _HEARD - {"id"}
        if fields.keys() - known:
            raise OptionInvalid(f"no field {sorted(fields.keys() - known)[0]!r}; there are {', '.join(sorted(known))}.")
        return self.edit_experiment(experiment_id, lambda there: dataclasses.replace(there, **fields))

    def list_experiments(
        self, *, project_name: str | None = None, status: str | None = None, limit: int = 100, after: str = ""
    ) -> Page[Experiment]:
        """Runs, the latest start first, a page at a time.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     for number in range(3):
            ...         _ = db.save_experiment(Experiment(id=f"r{number}", name="x", start_time=number))
            ...     first = db.list_experiments(limit=2)
            ...     rest = db.list_experiments(limit=2, after=first.next)
            ...     [e.id for e in first.items], [e.id for e in rest.items], rest.next
            (['r2', 'r1'], ['r0'], '')
        """
        wanted = {"project_name": project_name, "status": status}
        same = [_table.c[name] == value for name, value in wanted.items() if value is not None]
        order = [_table.c.start_time, _table.c.id]
        statement = page_of(_joined().where(*same), order, after=after, limit=limit)
        rows = self._read(lambda connection: connection.execute(statement).mappings().all())
        found = [experiment_of(row) for row in rows[:limit]]
        more = len(rows) > limit
        return Page(found, cursor_of([found[-1].start_time, found[-1].id]) if more else "")

    def heartbeat(self, experiment_id: str, *, step: int | None = None, at: float | None = None) -> None:
        """Note that a run is alive, and when its step last moved; by the clock of the database, unless ``at`` is given.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     db.heartbeat("r1", step=7)
            ...     run = db.get_experiment("r1")
            ...     run.step, db.now() - run.last_seen < 60
            (7, True)
        """
        number = self._number_of(experiment_id)

        def work(connection: Connection) -> None:
            now, row = _now(connection) if at is None else literal(at, Double), _beats.c
            since = case((row.step == step, row.last_step_at), else_=now)
            moved = {} if step is None else {"last_step_at": since, "step": step}
            beat = _beats.update().where(row.experiment == number).ordered_values(*{"last_seen": now, **moved}.items())
            if connection.execute(beat).rowcount == 0:
                first = {"step": step, "last_step_at": None if step is None else now}
                connection.execute(insert(_beats).values(experiment=number, last_seen=now, **first))

        self._write(work, durable=False)

    def now(self) -> float:
        """The time by the clock of the database, which last_seen and last_step_at are told by.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.now() > 1.7e9
            True
        """
        return self._read(lambda connection: float(connection.execute(select(_now(connection))).scalar_one()))


def _now(connection: Connection) -> ColumnElement[float]:
    """The clock of the database; ours where we do not know how to ask."""
    clock = _CLOCKS.get(connection.dialect.name)
    return literal(time.time(), Double) if clock is None else literal_column(clock, Double)


def _joined() -> Select[Any]:
    heard = (_beats.c.last_seen, _beats.c.last_step_at, _beats.c.step.label("heard_step"))
    return select(_table, *heard).outerjoin(_beats, _beats.c.experiment == _table.c.number)


def _found(connection: Connection, experiment_id: str, *, lock: bool = False) -> Experiment | None:
    statement = _joined().where(_table.c.id == experiment_id)
    row = connection.execute(statement.with_for_update(of=_table) if lock else statement).mappings().first()
    return None if row is None else experiment_of(row)


def _row(experiment: Experiment) -> dict[str, Any]:
    row = {field.name: getattr(experiment, field.name) for field in dataclasses.fields(experiment)}
    for name in _HEARD:
        del row[name]
    return {**row, "tags": as_words(experiment.tags, "tags"), "config": as_mapping(experiment.config, "config")}
