"""Run writes: stored and changed; when they were last heard of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from model_checkpoint.database.queries.run_queries import run_there
from model_checkpoint.database.records import Experiment
from model_checkpoint.database.table_rows import RowCatalog, TableRows, store_row
from model_checkpoint.database.values.exact_numbers import as_whole
from model_checkpoint.database.values.row_records import HEARD, require_fields, run_row_of
from model_checkpoint.errors import OptionInvalid, WrongReference


class RunWrites(RowCatalog):
    """What is written of runs."""

    def save_experiment(self, experiment: Experiment) -> Experiment:
        """Store a run, in place of what was stored under its id.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     db.get_experiment("r1").name
            'baseline'
        """
        row = run_row_of(experiment)
        self._write_rows(lambda rows: store_row(rows, "experiments", row, "id"))
        return experiment

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
        same = {"id": experiment_id}

        def work(rows: TableRows) -> Experiment:
            rows.lock("experiments", same)
            there = run_there(rows, experiment_id)
            if there is None:
                raise WrongReference(f"experiment {experiment_id!r} is not in the catalog.")
            after = change(there)
            if after.id != experiment_id:
                raise OptionInvalid(f"experiment {experiment_id!r}: its id cannot be changed.")
            rows.update("experiments", same, run_row_of(after))
            return after

        return self._write_rows(work)

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
        require_fields(Experiment, fields, fixed=("id", *HEARD))
        return self.edit_experiment(experiment_id, lambda there: dataclasses.replace(there, **fields))

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
        told = {"experiment": self._number_of(experiment_id)}
        told |= {} if step is None else {"step": as_whole(step, "step")}
        self._write_rows(lambda rows: _beat(rows, told, at), durable=False)


def _beat(rows: TableRows, told: dict[str, Any], at: float | None) -> None:
    now, values = (rows.clock, told) if at is None else (":at", {**told, "at": at})
    moments = {"last_seen": now}
    if "step" in told:
        moments["last_step_at"] = f"CASE WHEN step = :step THEN last_step_at ELSE {now} END"
        moments["step"] = ":step"  # the last: MySQL would compare with the new one
    assigned = ", ".join(f"{name} = {value}" for name, value in moments.items())
    if not rows.execute(f"UPDATE heartbeats SET {assigned} WHERE experiment = :experiment", values):
        first = {"experiment": ":experiment", **moments, **({"last_step_at": now} if "step" in told else {})}
        rows.execute(f"INSERT INTO heartbeats ({', '.join(first)}) VALUES ({', '.join(first.values())})", values)
