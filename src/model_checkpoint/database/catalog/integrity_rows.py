"""Integrity rows: what verifications found, and which checkpoint was verified longest ago."""

from __future__ import annotations

import dataclasses
import uuid

from sqlalchemy import Connection, insert, select

from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.models import CheckpointRow, IntegrityRow, table_of
from model_checkpoint.database.records import COMMITTED, Checkpoint, IntegrityRecord
from model_checkpoint.database.values.row_records import checkpoint_of

_table, _checkpoints = table_of(IntegrityRow), table_of(CheckpointRow)


class IntegrityCatalog(CatalogPart):
    """Verifications."""

    def record_integrity(self, record: IntegrityRecord) -> IntegrityRecord:
        """Note what a verification found; the checkpoint's health and time follow in the same transaction.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
            ...     _ = db.record_integrity(IntegrityRecord(checkpoint_id="c1", outcome="healthy"))
            ...     db.get_checkpoint("c1").health
            'healthy'

        Raises:
            RowRefused: The checkpoint is not in the catalog.
        """
        known = record if record.id else dataclasses.replace(record, id=uuid.uuid4().hex)
        row = {field.name: getattr(known, field.name) for field in dataclasses.fields(known)}
        found = {"health": known.outcome, "verified_at": known.checked_at}

        def work(connection: Connection) -> None:
            if connection.execute(select(_table.c.id).where(_table.c.id == known.id)).first() is None:
                connection.execute(insert(_table).values(row | {"details": dict(known.details)}))
            newer = (_checkpoints.c.id == known.checkpoint_id, _checkpoints.c.verified_at <= known.checked_at)
            connection.execute(_checkpoints.update().where(*newer).values(found))

        self._write(work)
        return known

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
