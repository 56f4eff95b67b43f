"""Intent rows: deletions and returns that were decided and are not finished; whoever finds one open carries on."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import select

from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.event_records import DeletionIntent
from model_checkpoint.database.models import IntentRow, table_of
from model_checkpoint.database.table_rows import TableRows, add_once
from model_checkpoint.database.values.row_records import fields_of
from model_checkpoint.errors import WrongReference

_table = table_of(IntentRow)


class IntentCatalog(CatalogPart):
    """Deletions and returns under way."""

    def record_intent(
        self,
        checkpoint_id: str,
        action: str = "delete",
        *,
        plan_id: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> DeletionIntent:
        """Note a deletion before its first byte goes.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     intent = db.record_intent("c1", details={"path": "runs/a/checkpoints/step-7"})
            ...     before = len(db.open_intents())
            ...     _ = db.finish_intent(intent.id, "deleted")
            ...     before, len(db.open_intents())
            (1, 0)
        """
        intent = DeletionIntent(
            id=uuid.uuid4().hex,
            checkpoint_id=checkpoint_id,
            action=action,
            plan_id=plan_id,
            details=dict(details or {}),
        )
        row = {**fields_of(intent), "finished_at": 0.0}
        self._write_rows(lambda rows: add_once(rows, "deletion_intents", row))
        return intent

    def finish_intent(self, intent_id: str, outcome: str = "done") -> DeletionIntent:
        """Note how a deletion ended; one that was finished before stays as it ended then.

        Example: see :meth:`record_intent`.

        Raises:
            WrongReference: There is no such intent.
        """
        ended = {"finished_at": time.time(), "outcome": outcome}

        def work(rows: TableRows) -> DeletionIntent:
            rows.update("deletion_intents", {"id": intent_id, "finished_at": 0.0}, ended)
            found = rows.find("deletion_intents", {"id": intent_id})
            if not found:
                raise WrongReference(f"intent {intent_id!r} is not in the catalog.")
            return _record(found[0])

        return self._write_rows(work)

    def open_intents(self, *, limit: int = 1000) -> list[DeletionIntent]:
        """Deletions that are not finished, the oldest first.

        Example: see :meth:`record_intent`.
        """
        order = (_table.c.created_at, _table.c.id)
        statement = select(_table).where(_table.c.finished_at == 0.0).order_by(*order).limit(limit)
        rows = self._read(lambda connection: connection.execute(statement).mappings().all())
        return [_record(row) for row in rows]

    def intents(self, checkpoint_id: str) -> list[DeletionIntent]:
        """All intents of one checkpoint, finished or not, the oldest first.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.intents("c1")
            []
        """
        found = self._read_rows(lambda rows: rows.find("deletion_intents", {"checkpoint_id": checkpoint_id}))
        return sorted((_record(row) for row in found), key=lambda one: (one.created_at, one.id))

    def removed(self, checkpoint_ids: Collection[str]) -> set[str]:
        """Those of these checkpoints that an intent of ours has brought into the trash.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.finish_intent(db.record_intent("c1").id, "deleted")
            ...     db.removed(["c1", "c2"])
            {'c1'}
        """
        asked = (
            "SELECT checkpoint_id FROM deletion_intents WHERE outcome = 'deleted' AND checkpoint_id IN :checkpoint_id"
        )
        found = self._read_rows(lambda rows: rows.query(asked, {"checkpoint_id": list(checkpoint_ids)}))
        return {row["checkpoint_id"] for row in found}


def _record(row: Mapping[Any, Any]) -> DeletionIntent:
    return DeletionIntent(**{**row, "finished_at": row["finished_at"] or None})
