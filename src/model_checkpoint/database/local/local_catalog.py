"""Local catalog: what a SQLite file of the schema we know answers, through Python's own driver."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from model_checkpoint.database.local.local_file import LocalFile
from model_checkpoint.database.local.local_rows import as_data
from model_checkpoint.database.records import (
    COMMITTED,
    UNSAFE,
    AuditEntry,
    Checkpoint,
    CheckpointMark,
    LineageEdge,
    MetricSummary,
    Page,
    RunHead,
    RunOverview,
    Series,
)
from model_checkpoint.database.values.cursors import MOST, cursor_of, read_cursor
from model_checkpoint.database.values.row_records import checkpoint_of, overview_of, summary_of
from model_checkpoint.database.values.series_columns import fetched_series, joined_series, thinned
from model_checkpoint.errors import OptionInvalid, WrongReference

_NEWEST = """(SELECT id FROM checkpoints WHERE experiment_id = experiments.id AND state = ?{}
    ORDER BY step DESC, created_at DESC, id DESC LIMIT 1)"""
_OVERVIEWS = f"""
    SELECT experiments.*, last_seen, last_step_at, heartbeats.step AS heard_step,
        checkpoints, total_bytes, unique_bytes,
        {_NEWEST.format("")} AS newest_id, {_NEWEST.format(" AND health NOT IN (?, ?)")} AS safe_id
    FROM experiments LEFT JOIN heartbeats ON heartbeats.experiment = experiments.number
    LEFT JOIN (
        SELECT experiment_id, count(*) AS checkpoints, sum(file_size) AS total_bytes,
            sum(coalesce(unique_bytes, file_size)) AS unique_bytes
        FROM checkpoints WHERE state = ? GROUP BY experiment_id
    ) AS totals ON totals.experiment_id = experiments.id
    ORDER BY start_time DESC, experiments.id DESC"""
_SUMMARIES = """
    SELECT experiments.id AS run, metric_keys.name AS name, metric_summaries.* FROM metric_summaries
    JOIN experiments ON experiments.number = metric_summaries.experiment
    JOIN metric_keys ON metric_keys.id = metric_summaries.key WHERE experiments.id IN ({})"""
_OF_SERIES = "FROM experiment_metrics WHERE experiment = ? AND key = ?"


class LocalCatalog:
    """The answers of one file; a :class:`~.catalog_reader.CatalogReader`."""

    def __init__(self, file: LocalFile) -> None:
        self._file = file

    def now(self) -> float:
        """The time by the clock of SQLite, which is that of this machine."""
        return float(self._file.rows("SELECT (julianday('now') - 2440587.5) * 86400.0 AS now")[0]["now"])

    def overviews(self) -> list[RunOverview]:
        """Every run with what its checkpoints come to, the latest start first."""
        rows = self._file.rows(_OVERVIEWS, (COMMITTED, COMMITTED, *UNSAFE, COMMITTED))
        ids = {row[name] for row in rows for name in ("newest_id", "safe_id") if row[name]}
        text = "SELECT id, step, created_at, health FROM checkpoints WHERE id IN ({})"
        marks = {row["id"]: CheckpointMark(**row) for row in self._file.rows_in_lists(text, sorted(ids))}
        return [overview_of(as_data(row), marks) for row in rows]

    def run_heads(self, experiment_ids: Collection[str]) -> dict[str, RunHead]:
        """What runs are called, and the newest checkpoint of each."""
        text = f"SELECT id, name, project_name, {_NEWEST.format('')} AS newest FROM experiments WHERE id IN ({{}})"
        rows = self._file.rows_in_lists(text, experiment_ids, first=(COMMITTED,))
        return {row["id"]: RunHead(row["name"], row["project_name"], row["newest"]) for row in rows}

    def summaries(self, experiment_id: str | Sequence[str]) -> list[MetricSummary]:
        """Last, least and greatest value of every metric of one or several runs."""
        wanted = [experiment_id] if isinstance(experiment_id, str) else experiment_id
        found = [summary_of(row) for row in self._file.rows_in_lists(_SUMMARIES, wanted)]
        return sorted(found, key=lambda one: (one.experiment_id, one.metric_name))

    def metric_names(self) -> list[str]:
        """The names of all metrics that were ever measured."""
        return [row["name"] for row in self._file.rows("SELECT name FROM metric_keys ORDER BY name")]

    def series(self, experiment_id: str, name: str, *, buckets: int | None = None) -> Series:
        """One series as columns, thinned to what a chart of so many columns shows."""
        if buckets is not None and buckets < 1:
            raise OptionInvalid(f"buckets: must be 1 or more, got {buckets}.")
        run = self._file.rows("SELECT number FROM experiments WHERE id = ?", (experiment_id,))
        if not run:
            raise WrongReference(f"experiment {experiment_id!r} is not in the catalog.")
        key = self._file.rows("SELECT id FROM metric_keys WHERE name = ?", (name,))
        series = (run[0]["number"], key[0]["id"] if key else 0)
        text = f"SELECT step, at, grade, value {_OF_SERIES} ORDER BY experiment, key, step, at"
        with self._file.asked(text, series) as cursor:
            chunks = fetched_series(cursor)
            if buckets is not None:
                ends = self._file.rows(f"SELECT min(step) AS low, max(step) AS high {_OF_SERIES}", series)[0]
                chunks = thinned(chunks, (ends["low"], ends["high"]), buckets)
            return joined_series(list(chunks))

    def get_checkpoints(self, checkpoint_ids: Sequence[str]) -> list[Checkpoint]:
        """The checkpoints of these ids that are there, in this order."""
        rows = self._file.rows_in_lists("SELECT * FROM checkpoints WHERE id IN ({})", checkpoint_ids)
        found = {row["id"]: checkpoint_of(as_data(row)) for row in rows}
        return [found[one] for one in checkpoint_ids if one in found]

    def crowd(self, experiment_id: str, root: str, *, most: int | None = None) -> list[Checkpoint]:
        """The checkpoints that a run has in one root, newest first; none if there are more than ``most``."""
        here = "FROM checkpoints WHERE experiment_id = ? AND state = ? AND root = ?"
        place = (experiment_id, COMMITTED, root)
        if most is not None and len(self._file.rows(f"SELECT id {here} LIMIT ?", (*place, most + 1))) > most:
            return []
        found = [checkpoint_of(as_data(row)) for row in self._file.rows(f"SELECT * {here}", place)]
        return sorted(found, key=lambda one: (one.step, one.created_at, one.id), reverse=True)

    def edges(self) -> list[LineageEdge]:
        """What came out of what, oldest first."""
        found = [LineageEdge(**row) for row in self._file.rows("SELECT * FROM lineage_edges")]
        return sorted(found, key=lambda one: (one.created_at, one.parent, one.child))

    def beginnings(self, checkpoint_ids: Sequence[str]) -> dict[str, list[str]]:
        """The runs that were resumed from each of these checkpoints."""
        text = "SELECT * FROM lineage_edges WHERE kind = 'resumed' AND parent IN ({})"
        found: dict[str, list[str]] = {}
        for row in sorted(self._file.rows_in_lists(text, checkpoint_ids), key=lambda row: row["created_at"]):
            found.setdefault(row["parent"], []).append(row["child"])
        return found

    def savers(self, checkpoint_ids: Collection[str]) -> dict[str, str]:
        """Who saved these checkpoints."""
        text = "SELECT subject, actor FROM audit_log WHERE action = 'save' AND subject IN ({})"
        return {row["subject"]: row["actor"] for row in self._file.rows_in_lists(text, checkpoint_ids)}

    def audit(
        self, *, subject: str | None = None, action: str | None = None, limit: int = 100, after: str = ""
    ) -> Page[AuditEntry]:
        """The log, the latest row first, a page at a time."""
        if not 1 <= limit <= MOST:
            raise OptionInvalid(f"limit: must be from 1 to {MOST}, got {limit}.")
        place = read_cursor(after, 1)[0] if after else None
        asked = {"subject = ?": subject, "action = ?": action, "number < ?": place}
        wanted = {text: value for text, value in asked.items() if value is not None}
        where = f"WHERE {' AND '.join(wanted)}" if wanted else ""
        text = f"SELECT * FROM audit_log {where} ORDER BY number DESC LIMIT ?"
        rows = [as_data(row) for row in self._file.rows(text, (*wanted.values(), limit + 1))]
        numbers = [row.pop("number") for row in rows]
        entries = [AuditEntry(**row) for row in rows[:limit]]
        return Page(entries, cursor_of([numbers[limit - 1]]) if len(rows) > limit else "")
