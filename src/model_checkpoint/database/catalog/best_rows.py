"""Best rows: the best checkpoints by a metric, figures of a run."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, func, select

from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.catalog.checkpoint_rows import CheckpointCatalog
from model_checkpoint.database.catalog.metric_rows import MetricCatalog
from model_checkpoint.database.models import CheckpointMetricRow, CheckpointRow, table_of
from model_checkpoint.database.records import COMMITTED, Checkpoint, ExperimentStatistics
from model_checkpoint.database.values.exact_numbers import NOT_A_NUMBER, joined
from model_checkpoint.errors import OptionInvalid

_table, _metrics = table_of(CheckpointRow), table_of(CheckpointMetricRow)


class BestCatalog(CheckpointCatalog, MetricCatalog, CatalogPart):
    """The best checkpoints."""

    def best(self, experiment_id: str, metric: str, direction: str = "min", k: int = 1) -> list[Checkpoint]:
        """The ``k`` best checkpoints of a run by a metric, best first; among equals the newest, NaN not at all.

        ``loss`` and ``val_loss`` are metrics too. What is asked for costs, not how many checkpoints there are.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     for step, acc in enumerate((0.7, 0.9, 0.8)):
            ...         _ = db.save_checkpoint(Checkpoint(id=f"c{step}", experiment_id="r1", metrics={"acc": acc}))
            ...     [one.id for one in db.best("r1", "acc", "max", k=2)]
            ['c1', 'c2']
        """
        if direction not in ("min", "max"):
            raise OptionInvalid(f"direction: must be 'min' or 'max', got {direction!r}.")
        if k < 1:
            raise OptionInvalid(f"k: must be 1 or more, got {k}.")
        key = self._key_of(metric)
        if key is None:
            return []
        statement = _ranked(experiment_id, key, direction).limit(k)
        ids = self._read(lambda connection: [row.checkpoint_id for row in connection.execute(statement)])
        return [one for one in self.get_checkpoints(ids) if one.state == COMMITTED]

    def get_experiment_statistics(self, experiment_id: str) -> ExperimentStatistics:
        """What a run has left so far: checkpoints, bytes, best losses, a summary of each metric.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1", file_size=10, loss=0.5))
            ...     figures = db.get_experiment_statistics("r1")
            ...     figures.checkpoints, figures.total_bytes, figures.best_loss
            (1, 10, 0.5)
        """
        self._number_of(experiment_id)
        size, unique = _table.c.file_size, func.coalesce(_table.c.unique_bytes, _table.c.file_size)
        figures = select(
            _table.c.state,
            func.count(),
            func.sum(size),
            func.sum(unique),
            func.min(_table.c.step),
            func.max(_table.c.step),
        )
        statement = figures.where(_table.c.experiment_id == experiment_id).group_by(_table.c.state)
        rows = {row[0]: row for row in self._read(lambda connection: connection.execute(statement).all())}
        live = rows.get(COMMITTED) or (COMMITTED, 0, 0, 0, None, None)
        return ExperimentStatistics(
            experiment_id=experiment_id,
            checkpoints=live[1],
            deleted_checkpoints=sum(row[1] for state, row in rows.items() if state != COMMITTED),
            total_bytes=int(live[2]),
            unique_bytes=int(live[3]),
            first_step=live[4],
            last_step=live[5],
            best_loss=self._least(experiment_id, "loss"),
            best_val_loss=self._least(experiment_id, "val_loss"),
            metrics=self.summaries(experiment_id),
        )

    def _least(self, experiment_id: str, metric: str) -> float | None:
        statement = _ranked(experiment_id, self._key_of(metric) or 0, "min").limit(1)
        row = self._read(lambda connection: connection.execute(statement).first())
        return None if row is None else joined(row.grade, row.value)


def _ranked(experiment_id: str, key: int, direction: str) -> Select[Any]:
    """Ids, best first; each direction walks an index of its own."""
    column = _metrics.c
    newest = (column.step.desc(), column.created_at.desc(), column.checkpoint_id.desc())
    score = (column.grade, column.value) if direction == "min" else (column.grade.desc(), column.value.desc())
    same = (column.experiment_id == experiment_id, column.key == key, column.grade < NOT_A_NUMBER)
    return select(column.checkpoint_id, column.grade, column.value).where(*same).order_by(*score, *newest)
