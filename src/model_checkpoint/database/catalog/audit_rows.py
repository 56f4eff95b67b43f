"""Audit rows: what migrations leave in the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, inspect

from model_checkpoint.database.catalog.sql_rows import SqlRows
from model_checkpoint.database.event_records import SchemaChange
from model_checkpoint.database.opening.transactions import Transactions
from model_checkpoint.database.values.audit_entries import new_entry
from model_checkpoint.database.writes.history_writes import add_entry
from model_checkpoint.errors import CheckpointException


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
