"""Checkpoint rows: those of a run by type, state and flags; rows that are forgotten."""

from __future__ import annotations

from sqlalchemy import Connection, select, true

from model_checkpoint.database.asking.asked_checkpoints import NEWEST, AskedCheckpoints, age_of
from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.models import CheckpointRow, table_of
from model_checkpoint.database.records import COMMITTED, Checkpoint
from model_checkpoint.database.telling.told_checkpoints import ToldCheckpoints
from model_checkpoint.database.values.checkpoint_scores import FLAGS
from model_checkpoint.database.values.row_records import checkpoint_of

_table = table_of(CheckpointRow)


class CheckpointCatalog(AskedCheckpoints, ToldCheckpoints, CatalogPart):
    """Checkpoints."""

    def get_checkpoints_by_experiment(
        self,
        experiment_id: str,
        checkpoint_type: str | None = None,
        best_only: bool = False,
        *,
        limit: int | None = None,
        state: str = COMMITTED,
    ) -> list[Checkpoint]:
        """Checkpoints of a run, newest first; ``best_only`` those that carry a best flag; ``state="deleted"`` others.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoints([Checkpoint(id=f"c{n}", experiment_id="r1", step=n) for n in range(3)])
            ...     [one.id for one in db.get_checkpoints_by_experiment("r1", limit=2)]
            ['c2', 'c1']
        """
        if best_only:
            return self._flagged(experiment_id, checkpoint_type, state)[:limit]
        statement = select(_table).where(_table.c.experiment_id == experiment_id, _table.c.state == state)
        if checkpoint_type is not None:
            statement = statement.where(_table.c.checkpoint_type == checkpoint_type)
        newest = statement.order_by(*(_table.c[name].desc() for name in NEWEST)).limit(limit)
        return self._read(lambda connection: [checkpoint_of(row) for row in connection.execute(newest).mappings()])

    def _flagged(self, experiment_id: str, checkpoint_type: str | None, state: str) -> list[Checkpoint]:
        """Those with a flag, newest first; asked for the state too, SQLite would walk through all of a run by it."""
        each = [select(_table).where(_table.c.experiment_id == experiment_id, _table.c[f] == true()) for f in FLAGS]

        def work(connection: Connection) -> list[Checkpoint]:
            return [checkpoint_of(row) for one in each for row in connection.execute(one).mappings()]

        found = {one.id: one for one in self._read(work) if one.state == state}
        fitting = [one for one in found.values() if checkpoint_type in (None, one.checkpoint_type)]
        return sorted(fitting, key=age_of, reverse=True)

    def forget_checkpoint(self, checkpoint_id: str) -> bool:
        """Remove the row itself, as if it had never been saved; says whether there was one.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.forget_checkpoint("nothing")
            False
        """
        return self._tell(lambda rows: rows.delete("checkpoints", {"id": checkpoint_id}) > 0)
