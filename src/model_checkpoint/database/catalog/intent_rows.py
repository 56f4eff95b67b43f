"""Intent rows: deletions and returns that were decided and are not finished; whoever finds one open carries on."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, literal_column, select

from model_checkpoint.database.catalog.catalog_part import CatalogPart, in_lists
from model_checkpoint.database.models import IntentRow, table_of
from model_checkpoint.database.opening.prepared_statements import ask, change, insert_rows
from model_checkpoint.database.records import DeletionIntent
from model_checkpoint.errors import WrongReference

_table = table_of(IntentRow)
_BY_ID = select(_table).where(_table.c.id == bindparam("intent"))
_ENDING = (
    _table.update()
    .where(_table.c.id == bindparam("intent"), _table.c.finished_at == literal_column("0.0"))
    .values(finished_at=bindparam("at"), outcome=bindparam("how"))
)


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
        row = {field.name: getattr(intent, field.name) for field in dataclasses.fields(intent)} | {"finished_at": 0.0}

        def work(connection: Connection) -> None:
            if not ask(connection, _BY_ID, {"intent": intent.id}):
                insert_rows(connection, _table, [row])

        self._write(work)
        return intent

    def finish_intent(self, intent_id: str, outcome: str = "done") -> DeletionIntent:
        """Note how a deletion ended; one that was finished before stays as it ended then.

        Example: see :meth:`record_intent`.

        Raises:
            WrongReference: There is no such intent.
        """
        ended = {"at": time.time(), "how": outcome, "intent": intent_id}

        def work(connection: Connection) -> DeletionIntent:
            change(connection, _ENDING, ended)
            rows = ask(connection, _BY_ID, {"intent": intent_id})
            if not rows:
                raise WrongReference(f"intent {intent_id!r} is not in the catalog.")
            return _record(dict(rows[0]))

        return self._write(work)

    def open_intents(self, *, limit: int = 1000) -> list[DeletionIntent]:
        """Deletions that are not finished, the oldest first.

        Example: see :meth:`record_intent`.
        """
        order = (_table.c.created_at, _table.c.id)
        statement = select(_table).where(_table.c.finished_at == 0.0).order_by(*order).limit(limit)
        rows = self._read(lambda connection: connection.execute(statement).mappings().all())
        return [_record(dict(row)) for row in rows]

    def intents(self, checkpoint_id: str) -> list[DeletionIntent]:
        """All intents of one checkpoint, finished or not, the oldest first.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     db.intents("c1")
            []
        """
        statement = select(_table).where(_table.c.checkpoint_id == checkpoint_id)
        rows = self._read(lambda connection: connection.execute(statement).mappings().all())
        return sorted((_record(dict(row)) for row in rows), key=lambda one: (one.created_at, one.id))

    def removed(self, checkpoint_ids: Collection[str]) -> set[str]:
        """Those of these checkpoints that an intent of ours has brought into the trash.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.finish_intent(db.record_intent("c1").id, "deleted")
            ...     db.removed(["c1", "c2"])
            {'c1'}
        """
        statement = select(_table.c.checkpoint_id).where(_table.c.outcome == "deleted")
        ids = dict.fromkeys(checkpoint_ids)
        return self._read(
            lambda connection: {row[0] for row in in_lists(connection, statement, _table.c.checkpoint_id, ids)}
        )


def _record(row: dict[str, Any]) -> DeletionIntent:
    return DeletionIntent(**{**row, "finished_at": row["finished_at"] or None})
