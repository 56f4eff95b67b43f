"""History writes: what came out of what, what verifications found, what was done; what comes twice is there once."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from typing import Any

from model_checkpoint.database.event_records import AuditEntry, IntegrityRecord, LineageEdge
from model_checkpoint.database.table_rows import RowCatalog, TableRows, add_once, store_row
from model_checkpoint.database.values.audit_entries import new_entry
from model_checkpoint.database.values.row_records import fields_of


class IntegrityWrites(RowCatalog):
    """What verifications found."""

    def record_integrity(self, record: IntegrityRecord) -> IntegrityRecord:
        """Note what a verification found; the checkpoint's health and time follow in the same transaction.

        Example:
            >>> from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment
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
        same = {"id": known.checkpoint_id}
        found = {"health": known.outcome, "verified_at": known.checked_at}

        def work(rows: TableRows) -> None:
            there = rows.find("checkpoints", same, lock=True)
            _add(rows, "integrity_records", known)
            if all(row["verified_at"] <= known.checked_at for row in there):
                rows.update("checkpoints", same, found)

        self._write_rows(work)
        return known


class LineageWrites(RowCatalog):
    """What came out of what."""

    def add_edge(self, edge: LineageEdge) -> LineageEdge:
        """Note that one thing came out of another; the same edge twice is one.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.add_edge(LineageEdge(parent="r1", child="c1", kind="saved", step=100))
            ...     _ = db.add_edge(LineageEdge(parent="c1", child="r2", kind="resumed", step=100))
            ...     [(one.parent, one.child) for one in db.lineage("r2")]
            [('r1', 'c1'), ('c1', 'r2')]
        """
        row = fields_of(edge)
        self._write_rows(lambda rows: store_row(rows, "lineage_edges", row, "parent", "child", "kind"))
        return edge


class AuditWrites(RowCatalog):
    """What was done."""

    def record_audit(
        self,
        action: str,
        subject: str = "",
        *,
        outcome: str = "ok",
        details: Mapping[str, Any] | None = None,
        actor: str | None = None,
        durable: bool = True,
    ) -> AuditEntry:
        """Add one row: when, who, what, outcome; unless ``durable``, the power may take it in its first moments.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.record_audit("pin", "c1", actor="ann")
            ...     [(one.actor, one.action, one.outcome) for one in db.audit(subject="c1").items]
            [('ann', 'pin', 'ok')]
        """
        entry = new_entry(action, subject, outcome=outcome, details=details, actor=actor)
        self.add_audit(entry, durable=durable)
        return entry

    def add_audit(self, entry: AuditEntry, *, durable: bool = True) -> None:
        """Add an entry as it was made, also one of an earlier moment; added twice it is there once.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection
            >>> entry = new_entry("pin", "c1", actor="ann")
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     for _ in range(2):
            ...         db.add_audit(entry)
            ...     db.audit().items == [entry]
            True
        """
        self._write_rows(lambda rows: add_entry(rows, entry), durable=durable)


def add_entry(rows: TableRows, entry: AuditEntry) -> None:
    """Write an entry, once."""
    _add(rows, "audit_log", entry)


def _add(rows: TableRows, table: str, record: AuditEntry | IntegrityRecord) -> None:
    add_once(rows, table, {**fields_of(record), "details": dict(record.details)})
