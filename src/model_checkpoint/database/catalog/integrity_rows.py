"""Integrity rows: what verifications found, and which checkpoint was verified longest ago."""

from __future__ import annotations

from sqlalchemy import select

from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.event_records import IntegrityRecord
from model_checkpoint.database.models import CheckpointRow, IntegrityRow, table_of
from model_checkpoint.database.records import COMMITTED, Checkpoint
from model_checkpoint.database.values.row_records import checkpoint_of
from model_checkpoint.database.writes.history_writes import IntegrityWrites

_table, _checkpoints = table_of(IntegrityRow), table_of(CheckpointRow)


class IntegrityCatalog(IntegrityWrites, CatalogPart):
    """Verifications."""

    def integrity(self, checkpoint_id: str | None = None, *, limit: int = 100) -> list[IntegrityRecord]:
        """What verifications found, of one checkpoint or all; the latest first.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.integrity("c1")
            []
        """
        statement = select(_table).order_by(_table.c.checked_at.desc(), _table.c.id.desc()).limit(limit)
        if checkpoint_id is not None:
            statement = statement.where(_table.c.checkpoint_id == checkpoint_id)
        rows = self._read(lambda connection: connection.execute(statement).mappings().all())
        return [IntegrityRecord(**dict(row)) for row in rows]

    def due_for_verification(self, *, before: float | None = None, limit: int = 100) -> list[Checkpoint]:
        """Checkpoints not verified since ``before``, those never verified first, then the longest ago.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
            ...     [one.id for one in db.due_for_verification()]
            ['c1']
        """
        column = _checkpoints.c
        statement = select(_checkpoints).where(column.state == COMMITTED)
        if before is not None:
            statement = statement.where(column.verified_at < before)
        statement = statement.order_by(column.verified_at, column.id).limit(limit)
        rows = self._read(lambda connection: connection.execute(statement).mappings().all())
        return [checkpoint_of(row) for row in rows]
