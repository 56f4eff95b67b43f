"""Run queries: runs, and what their checkpoints come to."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from model_checkpoint.database.queries.row_pages import query_page
from model_checkpoint.database.records import COMMITTED, UNSAFE, CheckpointMark, Experiment, Page, RunHead
from model_checkpoint.database.table_rows import RowCatalog, TableRows
from model_checkpoint.database.values.row_records import RUN_COLUMNS, experiment_of

if TYPE_CHECKING:  # a listing of checkpoints asks a whole catalog, but not this
    from model_checkpoint.database.summed_records import RunOverview

_RUN = (
    ", ".join(f"experiments.{name}" for name in RUN_COLUMNS) + ", last_seen, last_step_at, heartbeats.step heard_step"
)
_HEARD = "FROM experiments LEFT JOIN heartbeats ON heartbeats.experiment = experiments.number"
_RUNS = f"SELECT {_RUN} {_HEARD}"
_NEWEST = """(SELECT id FROM checkpoints WHERE experiment_id = experiments.id AND state = :state{}
    ORDER BY step DESC, created_at DESC, id DESC LIMIT 1)"""
_SAFE = " AND health NOT IN ({})".format(", ".join(f"'{word}'" for word in UNSAFE))
_OVERVIEWS = f"""
    SELECT {_RUN}, checkpoints, total_bytes, unique_bytes,
        {_NEWEST.format("")} AS newest_id, {_NEWEST.format(_SAFE)} AS safe_id
    {_HEARD}
    LEFT JOIN (
        SELECT experiment_id, count(*) AS checkpoints, sum(file_size) AS total_bytes,
            sum(coalesce(unique_bytes, file_size)) AS unique_bytes
        FROM checkpoints WHERE state = :state{{of_them}} GROUP BY experiment_id
    ) AS totals ON totals.experiment_id = experiments.id
    {{chosen}} ORDER BY start_time DESC, experiments.id DESC"""
_MARKS = "SELECT id, step, created_at, health FROM checkpoints WHERE id IN :id"
_HEADS = f"SELECT id, name, project_name, {_NEWEST.format('')} AS newest_id FROM experiments"


class RunQueries(RowCatalog):
    """Runs."""

    def now(self) -> float:
        """The time by the clock of the database, which last_seen and last_step_at are told by.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.now() > 1.7e9
            True
        """
        return float(self._read_rows(lambda rows: rows.scan(f"SELECT {rows.clock}", {}).fetchone()[0]))

    def get_experiment(self, experiment_id: str) -> Experiment | None:
        """The run of that id, or None.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     print(db.get_experiment("nobody"))
            None
        """
        return self._read_rows(lambda rows: run_there(rows, experiment_id))

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
        same, order = {"project_name": project_name, "status": status}, ["start_time", "experiments.id"]
        found, more = self._read_rows(lambda rows: query_page(rows, _RUNS, same, order, after=after, limit=limit))
        return Page([experiment_of(row) for row in found], more)

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
        from model_checkpoint.database.values.summed_rows import overview_of

        every = experiment_ids is None
        chosen = {"of_them": "" if every else " AND experiment_id IN :run", "chosen": ""}
        chosen |= {} if every else {"chosen": "WHERE experiments.id IN :run"}
        asked: dict[str, Any] = {"state": COMMITTED} | ({} if experiment_ids is None else {"run": list(experiment_ids)})

        def work(rows: TableRows) -> list[RunOverview]:
            found = rows.query(_OVERVIEWS.format(**chosen), asked)
            ids = sorted({row[name] for row in found for name in ("newest_id", "safe_id") if row[name]})
            marks = {row["id"]: CheckpointMark(**row) for row in rows.query(_MARKS, {"id": ids})}
            return [overview_of(row, marks) for row in found]

        return self._read_rows(work)

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
        asked: dict[str, Any] = {"state": COMMITTED}
        text = _HEADS if experiment_ids is None else f"{_HEADS} WHERE id IN :run"
        asked |= {} if experiment_ids is None else {"run": list(experiment_ids)}
        found = self._read_rows(lambda rows: rows.query(text, asked))
        return {row["id"]: RunHead(row["name"], row["project_name"], row["newest_id"]) for row in found}


def run_there(rows: TableRows, experiment_id: str) -> Experiment | None:
    """The run of that id, if there is one."""
    found = rows.query(f"{_RUNS} WHERE experiments.id = :id", {"id": experiment_id})
    return experiment_of(found[0]) if found else None
