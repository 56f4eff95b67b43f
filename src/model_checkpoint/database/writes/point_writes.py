"""Point writes: what was measured, written in batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from model_checkpoint.database.errors import RowRefused
from model_checkpoint.database.records import Metric
from model_checkpoint.database.table_rows import RowCatalog
from model_checkpoint.database.values.point_columns import LoggedCall, columns_of, metrics_of
from model_checkpoint.database.writes.point_batches import add_points, grouped


class PointWrites(RowCatalog):
    """What runs measured."""

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
            self._forget_numbers()
            return self._add(series, durable=durable)

    def _add(self, series: dict[tuple[str, str], Any], *, durable: bool) -> int:
        numbers = self._numbers_of({run for run, _ in series})
        keys = self._keys_of({name for _, name in series})
        batches = {(numbers[run], keys[name]): points for (run, name), points in series.items()}
        return self._write_rows(lambda rows: add_points(rows, batches), durable=durable)

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
