"""Statistics rows: what a run has left so far, in numbers."""

from __future__ import annotations

from sqlalchemy import func, select

from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.models import CheckpointRow, table_of
from model_checkpoint.database.queries.checkpoint_queries import CheckpointQueries
from model_checkpoint.database.queries.point_queries import PointQueries
from model_checkpoint.database.records import COMMITTED
from model_checkpoint.database.summed_records import ExperimentStatistics

_table = table_of(CheckpointRow)


class StatisticsCatalog(CheckpointQueries, PointQueries, CatalogPart):
    """Figures of runs."""

    def get_experiment_statistics(self, experiment_id: str) -> ExperimentStatistics:
        """What a run has left so far: checkpoints, bytes, best losses, a summary of each metric.

        Example:
            >>> from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment
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
