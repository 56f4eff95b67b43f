"""Point queries: what runs measured, summed up without reading a point, or as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from model_checkpoint.database.records import Metric
from model_checkpoint.database.table_rows import RowCatalog, TableRows
from model_checkpoint.database.values.exact_numbers import joined
from model_checkpoint.errors import OptionInvalid

if TYPE_CHECKING:  # a listing of checkpoints asks a whole catalog, but not this
    from model_checkpoint.database.summed_records import MetricSummary, Series

_LAST_STEP = (1 << 63) - 1
_SUMMED = (
    *("count", "nan_count", "last_step", "last_at", "last_grade", "last_value"),
    *(f"{end}_{part}" for end in ("min", "max") for part in ("grade", "value", "step")),
)
_SUMMARIES = f"""
    SELECT experiments.id AS run, metric_keys.name, {", ".join(f"metric_summaries.{one}" for one in _SUMMED)}
    FROM metric_summaries JOIN experiments ON experiments.number = metric_summaries.experiment
    JOIN metric_keys ON metric_keys.id = metric_summaries.key WHERE """
_OF_SERIES = "FROM experiment_metrics WHERE experiment = :experiment AND experiment_metrics.key = :key"
_POINTS = f"SELECT step, at, grade, value {_OF_SERIES}{{}} ORDER BY experiment, experiment_metrics.key, step, at"
_ENDS = f"SELECT min(step), max(step) {_OF_SERIES}{{}}"
_WITHIN = " AND step BETWEEN :low AND :high"


class PointQueries(RowCatalog):
    """Metrics."""

    def metric_names(self) -> list[str]:
        """The names of all metrics that were ever measured.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.metric_names()
            []
        """
        return sorted(
            row["name"] for row in self._read_rows(lambda rows: rows.find("metric_keys", {}, columns=["name"]))
        )

    def summaries(self, experiment_id: str | Sequence[str]) -> list[MetricSummary]:
        """Last, least and greatest value of every metric of one or several runs, without reading a point.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment, Metric
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.write_metrics([Metric("r1", "loss", 1.0 - step / 10, step) for step in range(5)])
            ...     [(one.metric_name, one.count, one.last, one.max) for one in db.summaries("r1")]
            [('loss', 5, 0.6, 1.0)]
        """
        wanted = [experiment_id] if isinstance(experiment_id, str) else list(experiment_id)
        return self._summed_up("experiments.id IN :id", {"id": wanted})

    def summaries_of(self, metric_names: Sequence[str]) -> list[MetricSummary]:
        """Last, least and greatest value of these metrics in every run that has them.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment, Metric
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.write_metrics([Metric("r1", "loss", 1.0, 0), Metric("r1", "accuracy", 0.5, 0)])
            ...     [(one.experiment_id, one.last) for one in db.summaries_of(["loss"])]
            [('r1', 1.0)]
        """
        return self._summed_up("metric_keys.name IN :name", {"name": list(metric_names)})

    def _summed_up(self, chosen: str, values: dict[str, Any]) -> list[MetricSummary]:
        from model_checkpoint.database.values.summed_rows import summary_of

        rows = self._read_rows(lambda rows: rows.query(_SUMMARIES + chosen, values))
        return sorted((summary_of(row) for row in rows), key=lambda one: (one.experiment_id, one.metric_name))

    def get_metrics(
        self, experiment_id: str, metric_name: str | None = None, step_range: tuple[int, int] | None = None
    ) -> list[Metric]:
        """Points of a run by name, step and time; ``step_range`` includes both ends.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment, Metric
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.write_metrics([Metric("r1", "loss", 1.0, step) for step in range(5)])
            ...     [point.step for point in db.get_metrics("r1", "loss", (1, 3))]
            [1, 2, 3]
        """
        number = self._number_of(experiment_id)
        names = sorted({one.metric_name for one in self.summaries(experiment_id)})
        wanted = [name for name in names if metric_name is None or name == metric_name]
        keys = self._keys_of(wanted)

        def work(rows: TableRows) -> list[Metric]:
            return [
                Metric(experiment_id, name, joined(grade, value), step, at)
                for name in wanted
                for step, at, grade, value in _scan(rows, {"experiment": number, "key": keys[name]}, step_range)
            ]

        return self._read_rows(work)

    def series(
        self,
        experiment_id: str,
        name: str,
        *,
        since: int | None = None,
        limit: int | None = None,
        buckets: int | None = None,
    ) -> Series:
        """One series as columns.

        Args:
            experiment_id: The run.
            name: The metric.
            since: Only steps after this one, for whoever has the rest already.
            limit: At most so many points, the earliest first.
            buckets: Cut the steps into so many stretches of equal width and give of each only the least and the
                greatest point, and the first that is not finite: what a chart of that width can show.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment, Metric
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.write_metrics([Metric("r1", "loss", float(step), step) for step in range(5)])
            ...     db.series("r1", "loss", since=2).values.tolist()
            [3.0, 4.0]
        """
        from model_checkpoint.database.values.series_columns import fetched_series, joined_series, thinned

        for word, number in (("limit", limit), ("buckets", buckets)):
            if number is not None and number < 1:
                raise OptionInvalid(f"{word}: must be 1 or more, got {number}.")
        of = {"experiment": self._number_of(experiment_id), "key": self._key_of(name) or 0}
        steps = None if since is None else (since + 1, _LAST_STEP)

        def work(rows: TableRows) -> Series:
            chunks = fetched_series(_scan(rows, of, steps, limit))
            if buckets is not None:
                within, values = _narrowed(of, steps)
                chunks = thinned(chunks, rows.scan(_ENDS.format(within), values).fetchone(), buckets)
            return joined_series(list(chunks))

        return self._read_rows(work)


def _scan(rows: TableRows, of: dict[str, Any], steps: tuple[int, int] | None, limit: int | None = None) -> Any:
    """The driver's cursor of step, time, grade and value of a series in order; ``steps`` includes both ends."""
    within, values = _narrowed(of, steps)
    most, told = ("", {}) if limit is None else (" LIMIT :most", {"most": limit})
    return rows.scan(_POINTS.format(within) + most, values | told)


def _narrowed(of: dict[str, Any], steps: tuple[int, int] | None) -> tuple[str, dict[str, Any]]:
    return ("", of) if steps is None else (_WITHIN, {**of, "low": steps[0], "high": steps[1]})
