"""Metric rows: metrics of runs, written in batches, read by run, name and step, summed up without reading points."""

from __future__ import annotations

from model_checkpoint.database.asking.asked_points import AskedPoints, scan_points
from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.records import Metric
from model_checkpoint.database.table_rows import TableRows
from model_checkpoint.database.telling.told_points import ToldPoints
from model_checkpoint.database.values.exact_numbers import joined


class MetricCatalog(AskedPoints, ToldPoints, CatalogPart):
    """Metrics."""

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
        number = self._number_of(experiment_id)
        names = sorted({one.metric_name for one in self.summaries(experiment_id)})
        wanted = [name for name in names if metric_name is None or name == metric_name]
        keys = self._keys_of(wanted)

        def work(rows: TableRows) -> list[Metric]:
            return [
                Metric(experiment_id, name, joined(grade, value), step, at)
                for name in wanted
                for step, at, grade, value in scan_points(rows, {"experiment": number, "key": keys[name]}, step_range)
            ]

        return self._look(work)
