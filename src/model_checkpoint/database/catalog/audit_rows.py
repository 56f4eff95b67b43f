"""Audit rows: what was done, when, by whom, with what outcome; added, never changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, inspect, select

from model_checkpoint.database.catalog.catalog_part import CatalogPart, SqlRows, in_lists
from model_checkpoint.database.catalog.paging import page_of
from model_checkpoint.database.models import AuditRow, table_of
from model_checkpoint.database.opening.transactions import Transactions
from model_checkpoint.database.records import AuditEntry, Page, SchemaChange
from model_checkpoint.database.telling.told_history import ToldAudit, add_entry
from model_checkpoint.database.values.audit_entries import new_entry
from model_checkpoint.database.values.cursors import cursor_of
from model_checkpoint.errors import CheckpointException

_table = table_of(AuditRow)


class AuditCatalog(ToldAudit, CatalogPart):
    """The audit log."""

    def audit(
        self, *, subject: str | None = None, action: str | None = None, limit: int = 100, after: str = ""
    ) -> Page[AuditEntry]:
        """The log, the latest row first, a page at a time.

        Example: see :meth:`record_audit`.
        """
        wanted = {"subject": subject, "action": action}
        same = [_table.c[name] == value for name, value in wanted.items() if value is not None]
        statement = page_of(select(_table).where(*same), [_table.c.number], after=after, limit=limit)
        rows = [dict(row) for row in self._read(lambda connection: connection.execute(statement).mappings().all())]
        numbers = [row.pop("number") for row in rows]
        more = len(rows) > limit
        return Page([AuditEntry(**row) for row in rows[:limit]], cursor_of([numbers[limit - 1]]) if more else "")

    def savers(self, checkpoint_ids: Collection[str]) -> dict[str, str]:
        """Who saved these checkpoints, as ``user@host:process``, as far as the trail knows.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.record_audit("save", "c1", actor="ann@lab:7")
            ...     db.savers(["c1", "c2"])
            {'c1': 'ann@lab:7'}
        """
        statement = select(_table.c.subject, _table.c.actor).where(_table.c.action == "save")
        ids = dict.fromkeys(checkpoint_ids)
        return self._read(
            lambda connection: {
                subject: actor for subject, actor in in_lists(connection, statement, _table.c.subject, ids)
            }
        )

    def save_entries(self, checkpoint_ids: Collection[str]) -> dict[str, AuditEntry]:
        """The entries of the saves of these checkpoints, by their ids.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.record_audit("save", "c1", actor="ann")
            ...     db.save_entries(["c1", "c2"])["c1"].actor
            'ann'
        """
        columns = [column for column in _table.c if column.name != "number"]
        statement = select(*columns).where(_table.c.action == "save")

        def work(connection: Connection) -> dict[str, AuditEntry]:
            rows = in_lists(connection, statement, _table.c.subject, dict.fromkeys(checkpoint_ids))
            return {row.subject: AuditEntry(**row._mapping) for row in rows}

        return self._read(work)


def note_migration(connection: Connection, outcome: str, details: Mapping[str, Any]) -> None:
    """Let the log tell of a migration; before revision 0003 there is none."""
    if inspect(connection).has_table(_table.name):
        add_entry(SqlRows(connection), new_entry("migrate", "schema", outcome=outcome, details=details))


def note_change(connection: Connection, change: SchemaChange) -> None:
    """Let the log tell of a migration in the transaction that makes it."""
    details = {"from": change.from_revision, "to": change.to_revision, "backup": change.backup}
    note_migration(connection, "ok", details)


@contextmanager
def noting_failed_migration(transactions: Transactions, to_revision: str) -> Iterator[None]:
    """Let the log tell of a migration that ended early, if it still can, then let it fail."""
    try:
        yield
    except Exception as error:
        said = {"to": to_revision, "error": f"{type(error).__name__}: {error}"}
        with suppress(CheckpointException):  # what failed first is what must be told
            transactions.write(lambda connection: note_migration(connection, "failed", said))
        raise
