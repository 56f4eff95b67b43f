"""Audit rows: what was done, when, by whom, with what outcome; added, never changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, inspect

from model_checkpoint.database.asking.asked_history import AskedHistory
from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.catalog.sql_rows import SqlRows
from model_checkpoint.database.opening.transactions import Transactions
from model_checkpoint.database.records import AuditEntry, SchemaChange
from model_checkpoint.database.telling.told_history import ToldAudit, add_entry
from model_checkpoint.database.values.audit_entries import new_entry
from model_checkpoint.errors import CheckpointException


class AuditCatalog(AskedHistory, ToldAudit, CatalogPart):
    """The audit log."""

    def save_entries(self, checkpoint_ids: Collection[str]) -> dict[str, AuditEntry]:
        """The entries of the saves of these checkpoints, by their ids.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.record_audit("save", "c1", actor="ann")
            ...     db.save_entries(["c1", "c2"])["c1"].actor
            'ann'
        """
        same = {"action": "save", "subject": list(checkpoint_ids)}
        found = self._look(lambda rows: rows.find("audit_log", same))
        fields = [{name: value for name, value in row.items() if name != "number"} for row in found]
        return {one["subject"]: AuditEntry(**one) for one in fields}


def note_migration(connection: Connection, outcome: str, details: Mapping[str, Any]) -> None:
    """Let the log tell of a migration; before revision 0003 there is none."""
    if inspect(connection).has_table("audit_log"):
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
