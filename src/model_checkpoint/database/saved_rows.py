"""Saved rows: all that one save leaves in the catalog, in one transaction: row, best flags, edge and audit entry."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select

from model_checkpoint.database.catalog.audit_rows import whoami
from model_checkpoint.database.catalog.best_rows import KINDS
from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.catalog.checkpoint_columns import COMMITTED, checkpoint_of, scores_of, store_checkpoints
from model_checkpoint.database.errors import RowRefused
from model_checkpoint.database.models import AuditRow, CheckpointRow, EdgeRow, ExperimentRow, table_of
from model_checkpoint.database.records import Checkpoint

_experiments, _checkpoints = table_of(ExperimentRow), table_of(CheckpointRow)
_edges, _audits = table_of(EdgeRow), table_of(AuditRow)

Beats = Callable[[Checkpoint, Checkpoint], bool]  # the one that has a flag, and the new one


class SavedCatalog(CatalogPart):
    """What a save leaves."""

    def record_saved(
        self,
        checkpoint: Checkpoint,
        *,
        beats: Mapping[str, Beats] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> tuple[str, ...]:
        """Store a checkpoint that was just saved, with its edge, its audit entry and the best flags it wins.

        Saves of one run are put in a row here, so that a flag has one owner whoever saves at the same time. Done twice
        it is the same as done once.

        Args:
            checkpoint: The row.
            beats: Of each kind of flag (``loss``, ``val_loss``, ``metric``) whether the new one beats the one that has it,
                which is never asked where nobody has it and the new one does not beat itself.
            details: For the audit entry.

        Returns:
            The kinds of flags it won.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> lower = {"loss": lambda old, new: new.loss < old.loss or new is old}
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     [db.record_saved(Checkpoint(id=id, experiment_id="r1", loss=loss), beats=lower)
            ...      for id, loss in (("c1", 0.5), ("c2", 0.7), ("c3", 0.3))]
            [('loss',), (), ('loss',)]

        Raises:
            RowRefused: Its run is not in the catalog, or a field breaks a rule.
        """
        keys = self._keys_of(scores_of(checkpoint))

        def work(connection: Connection) -> tuple[str, ...]:
            run = select(_experiments.c.number).where(_experiments.c.id == checkpoint.experiment_id)
            if connection.execute(run.with_for_update()).first() is None:
                raise RowRefused(
                    f"checkpoint {checkpoint.id!r}: its run {checkpoint.experiment_id!r} is not in the catalog. Save "
                    "that first."
                )
            again = connection.execute(select(_checkpoints.c.id).where(_checkpoints.c.id == checkpoint.id)).first()
            store_checkpoints(connection, [checkpoint], keys)
            won = tuple(kind for kind, better in (beats or {}).items() if _wins(connection, checkpoint, kind, better))
            if again is None:
                _note(connection, checkpoint, {**(details or {}), "best": list(won)})
            return won

        return self._write(work)


def _wins(connection: Connection, new: Checkpoint, kind: str, better: Beats) -> bool:
    """Hand one flag over, if the new one deserves it."""
    column = _checkpoints.c[KINDS[kind]]
    same = (_checkpoints.c.experiment_id == new.experiment_id, _checkpoints.c.state == COMMITTED, column.is_(True))
    holders = [checkpoint_of(row) for row in connection.execute(select(_checkpoints).where(*same)).mappings()]
    if not better(new, new) or not all(better(holder, new) for holder in holders if holder.id != new.id):
        return False
    ids = [holder.id for holder in holders if holder.id != new.id]
    if ids:
        connection.execute(_checkpoints.update().where(_checkpoints.c.id.in_(ids)).values({column.name: False}))
    connection.execute(_checkpoints.update().where(_checkpoints.c.id == new.id).values({column.name: True}))
    return True


def _note(connection: Connection, new: Checkpoint, details: Mapping[str, Any]) -> None:
    edge = {"parent": new.experiment_id, "child": new.id, "kind": "saved", "step": new.step, "created_at": time.time()}
    connection.execute(insert(_edges), edge)
    entry = {"id": uuid.uuid4().hex, "at": time.time(), "actor": whoami(), "action": "save", "outcome": "ok"}
    connection.execute(insert(_audits), {**entry, "subject": new.id, "details": dict(details)})
