"""Metric rows: metrics of runs, written in batches, read by run, name and step, summed up without reading points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.catalog.metric_series import points_of, read_series
from model_checkpoint.database.catalog.point_batches import add_points, grouped
from model_checkpoint.database.errors import RowRefused
from model_checkpoint.database.models import ExperimentRow, MetricKeyRow, MetricSummaryRow, table_of
from model_checkpoint.database.records import Metric, MetricSummary, Series
from model_checkpoint.database.values.exact_numbers import joined
from model_checkpoint.database.values.point_columns import LoggedCall, columns_of, metrics_of
from model_checkpoint.database.values.row_records import summary_of

_experiments, _keys = table_of(ExperimentRow), table_of(MetricKeyRow)
_summaries = table_of(MetricSummaryRow)


class MetricCatalog(CatalogPart):
    """Metrics."""

    def write_metrics(self, rows: Iterable[Metric]) -> int:
        """Put down points of any runs in one transaction, and say how many were new; the same ones twice are one.

        A point is the same if run, name, step, time and value are; of one moment two values are both kept. A crash
        loses no point that was written; on SQLite, a power failure may take those of the last moments.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> points = [Metric("r1", "loss", 1 / (step + 1), step, 100.0 + step) for step in range(3)]
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     db.write_metrics(points), db.write_metrics(points)
            (3, 0)

        Raises:
            RowRefused: A run is not in the catalog, or a value is no number; nothing was written.
        """
        return self._add_or_look_again(grouped(rows))

    def write_calls(self, experiment_id: str, calls: Iterable[LoggedCall], *, durable: bool = False) -> int:
        """Put down what logging calls of one run said, as (time, step, values).

        All else is as :meth:`write_metrics` does it, at a multiple of the cost. If ``durable``, no power failure takes
        them, nor what this run wrote before.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> calls = [(100.0 + step, step, {"loss": 1 / (step + 1), "acc": 0.5}) for step in range(3)]
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     db.write_calls("r1", calls), db.write_calls("r1", calls)
            (6, 0)
        """
        columns, rest = columns_of(calls)
        series: dict[tuple[str, str], Any] = dict(grouped(metrics_of(experiment_id, rest)))
        series |= {(experiment_id, name): batch for name, batch in columns.items()}
        return self._add_or_look_again(series, durable=durable)

    def _add_or_look_again(self, series: dict[tuple[str, str], Any], *, durable: bool = False) -> int:
        if not series:
            return 0
        try:
            return self._add(series, durable=durable)
        except RowRefused:  # what we remember may be of a database that was replaced under our feet
            self._experiment_numbers.clear()
            self._key_ids.clear()
            return self._add(series, durable=durable)

    def _add(self, series: dict[tuple[str, str], Any], *, durable: bool) -> int:
        numbers = self._numbers_of({run for run, _ in series})
        keys = self._keys_of({name for _, name in series})
        batches = {(numbers[run], keys[name]): points for (run, name), points in series.items()}
        return self._write(lambda connection: add_points(connection, batches), durable=durable)

    def save_metric(self, metric: Metric) -> None:
        """Put down one point; many at once cost little more than one.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     db.save_metric(Metric("r1", "loss", 0.5, step=1))
            ...     db.get_metrics("r1")[0].metric_value
            0.5
        """
        self.write_metrics([metric])

    def get_metrics(
        self, experiment_id: str, metric_name: str | None = None, step_range: tuple[int, int] | None = None
    ) -> list[Metric]:
        """Points of a run by name, step and time; ``step_range`` includes both ends.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.write_metrics([Metric("r1", "loss", 1.0, step) for step in range(5)])
            ...     [point.step for point in db.get_metrics("r1", "loss", (1, 3))]
            [1, 2, 3]
        """
        number, keys = self._number_of(experiment_id), self._key_ids
        names = sorted({one.metric_name for one in self.summaries(experiment_id)})
        wanted = [name for name in names if metric_name is None or name == metric_name]
        self._keys_of(wanted)

        def work(connection: Connection) -> list[Metric]:
            return [
                Metric(experiment_id, name, joined(grade, value), step, at)
                for name in wanted
                for step, at, grade, value in connection.execute(points_of((number, keys[name]), step_range))
            ]

        return self._read(work)

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
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.write_metrics([Metric("r1", "loss", float(step), step) for step in range(5)])
            ...     db.series("r1", "loss", since=2).values.tolist()
            [3.0, 4.0]
        """
        series = (self._number_of(experiment_id), self._key_of(name) or 0)
        return self._read(lambda connection: read_series(connection, series, since=since, limit=limit, buckets=buckets))

    def summaries(self, experiment_id: str | Sequence[str]) -> list[MetricSummary]:
        """Last, least and greatest value of every metric of one or several runs, without reading a point.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.write_metrics([Metric("r1", "loss", 1.0 - step / 10, step) for step in range(5)])
            ...     [(one.metric_name, one.count, one.last, one.max) for one in db.summaries("r1")]
            [('loss', 5, 0.6, 1.0)]
        """
        wanted = [experiment_id] if isinstance(experiment_id, str) else list(experiment_id)
        return self._summed_up(_experiments.c.id.in_(wanted))

    def summaries_of(self, metric_names: Sequence[str]) -> list[MetricSummary]:
        """Last, least and greatest value of these metrics in every run that has them.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.write_metrics([Metric("r1", "loss", 1.0, 0), Metric("r1", "accuracy", 0.5, 0)])
            ...     [(one.experiment_id, one.last) for one in db.summaries_of(["loss"])]
            [('r1', 1.0)]
        """
        return self._summed_up(_keys.c.name.in_(list(metric_names)))

    def _summed_up(self, chosen: ColumnElement[bool]) -> list[MetricSummary]:
        statement = (
            select(_experiments.c.id.label("run"), _keys.c.name, _summaries)
            .join(_experiments, _experiments.c.number == _summaries.c.experiment)
            .join(_keys, _keys.c.id == _summaries.c.key)
            .where(chosen)
        )
        rows = self._read(lambda connection: connection.execute(statement).mappings().all())
        return sorted((summary_of(row) for row in rows), key=lambda one: (one.experiment_id, one.metric_name))
