"""Audit log, lineage, integrity records, deletion intents."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Double, ForeignKeyConstraint, UniqueConstraint

from model_checkpoint.database.schema.audit_guard import guard_audit, unguard_audit
from model_checkpoint.database.schema.ddl_steps import drop_tables, make_table
from model_checkpoint.database.values.column_types import OPTIONS, BigInt, ExactText, LongText, PlainData, WholeNumber

revision, down_revision = "0003", "0002"


def upgrade() -> None:
    """Make the tables and guard the log."""
    make_table(
        "audit_log",
        Column("number", BigInt, primary_key=True, autoincrement=True),
        Column("id", ExactText("audit id", 64), nullable=False),
        Column("at", Double, nullable=False),
        Column("actor", LongText("actor"), nullable=False),
        Column("action", ExactText("action", 32), nullable=False),
        Column("outcome", LongText("outcome"), nullable=False),
        Column("subject", ExactText("subject", 250), nullable=False),
        Column("details", PlainData("details"), nullable=False),
        UniqueConstraint("id"),
        indexes={"ix_audit_subject": ("subject", "number"), "ix_audit_action": ("action", "number")},
        **OPTIONS,
    )
    guard_audit(op.get_bind())
    make_table(
        "lineage_edges",
        Column("parent", ExactText("parent", 64), primary_key=True),
        Column("child", ExactText("child", 64), primary_key=True),
        Column("kind", ExactText("kind", 32), primary_key=True),
        Column("step", WholeNumber("step")),
        Column("created_at", Double, nullable=False),
        indexes={"ix_edges_child": ("child",)},
        **OPTIONS,
    )
    make_table(
        "integrity_records",
        Column("id", ExactText("integrity id", 64), primary_key=True),
        Column("checkpoint_id", ExactText("checkpoint id", 64), nullable=False),
        Column("outcome", ExactText("outcome", 32), nullable=False),
        Column("method", ExactText("method", 32), nullable=False),
        Column("checked_at", Double, nullable=False),
        Column("seconds", Double, nullable=False),
        Column("bytes_read", WholeNumber("bytes read"), nullable=False),
        Column("details", PlainData("details"), nullable=False),
        ForeignKeyConstraint(["checkpoint_id"], ["checkpoints.id"], ondelete="CASCADE"),
        indexes={
            "ix_integrity_checkpoint": ("checkpoint_id", "checked_at", "id"),
            "ix_integrity_newest": ("checked_at", "id"),
        },
        **OPTIONS,
    )
    make_table(
        "deletion_intents",
        Column("id", ExactText("intent id", 64), primary_key=True),
        Column("checkpoint_id", ExactText("checkpoint id", 64), nullable=False),
        Column("action", ExactText("action", 32), nullable=False),
        Column("plan_id", ExactText("plan id", 64), nullable=False),
        Column("details", PlainData("details"), nullable=False),
        Column("created_at", Double, nullable=False),
        Column("finished_at", Double, nullable=False),
        Column("outcome", LongText("outcome"), nullable=False),
        indexes={
            "ix_intents_open": ("finished_at", "created_at", "id"),
            "ix_intents_checkpoint": ("checkpoint_id",),
        },
        **OPTIONS,
    )


def downgrade() -> None:
    """Remove the tables and their guard."""
    drop_tables(["deletion_intents", "integrity_records", "lineage_edges", "audit_log"])
    unguard_audit(op.get_bind())
