"""Runs, checkpoints, metrics."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Double, ForeignKeyConstraint, SmallInteger, UniqueConstraint

from model_checkpoint.database.schema.ddl_steps import drop_tables, make_table
from model_checkpoint.database.values.column_types import OPTIONS, BigInt, ExactText, LongText, PlainData, WholeNumber

revision, down_revision = "0001", None
_NEWEST = ("step", "created_at", "id")


def upgrade() -> None:
    """Make the first tables."""
    make_table(
        "experiments",
        Column("number", BigInt, primary_key=True, autoincrement=True),
        Column("id", ExactText("experiment id", 64), nullable=False),
        Column("name", ExactText("experiment name", 250), nullable=False),
        Column("project_name", ExactText("project name", 250), nullable=False),
        Column("status", ExactText("status", 32), nullable=False),
        Column("start_time", Double, nullable=False),
        Column("end_time", Double),
        Column("step", WholeNumber("step"), nullable=False),
        Column("notes", LongText("notes"), nullable=False),
        Column("tags", PlainData("tags"), nullable=False),
        Column("config", PlainData("config"), nullable=False),
        UniqueConstraint("id"),
        indexes={
            "ix_experiments_newest": ("start_time", "id"),
            "ix_experiments_project": ("project_name", "start_time", "id"),
            "ix_experiments_status": ("status", "start_time", "id"),
        },
        **OPTIONS,
    )
    _make_checkpoints()
    make_table(
        "metric_keys",
        Column("id", BigInt, primary_key=True, autoincrement=True),
        Column("name", ExactText("metric name", 250), nullable=False),
        UniqueConstraint("name"),
        **OPTIONS,
    )
    make_table(
        "experiment_metrics",
        Column("experiment", BigInt, primary_key=True, autoincrement=False),
        Column("key", BigInt, primary_key=True, autoincrement=False),
        Column("step", BigInt, primary_key=True, autoincrement=False),
        Column("at", Double, primary_key=True),
        Column("grade", SmallInteger, nullable=False),
        Column("value", Double, nullable=False),
        sqlite_with_rowid=False,
        **OPTIONS,
    )


def _make_checkpoints() -> None:
    make_table(
        "checkpoints",
        Column("id", ExactText("checkpoint id", 64), primary_key=True),
        Column("experiment_id", ExactText("experiment id", 64), nullable=False),
        Column("epoch", WholeNumber("epoch")),
        Column("step", WholeNumber("step"), nullable=False),
        Column("checkpoint_type", ExactText("checkpoint type", 32), nullable=False),
        Column("file_path", LongText("file path"), nullable=False),
        Column("file_size", WholeNumber("file size"), nullable=False),
        Column("checksum", LongText("checksum"), nullable=False),
        Column("model_name", LongText("model name"), nullable=False),
        Column("loss_grade", SmallInteger),
        Column("loss", Double),
        Column("val_loss_grade", SmallInteger),
        Column("val_loss", Double),
        Column("notes", LongText("notes"), nullable=False),
        *(Column(f"is_best_{kind}", Boolean, nullable=False) for kind in ("loss", "val_loss", "metric")),
        Column("metrics", PlainData("metrics"), nullable=False),
        Column("metadata", PlainData("metadata"), nullable=False),
        Column("created_at", Double, nullable=False),
        Column("name", LongText("name"), nullable=False),
        Column("root", LongText("root"), nullable=False),
        Column("backend", ExactText("backend", 250), nullable=False),
        Column("parts", PlainData("parts"), nullable=False),
        Column("tags", PlainData("tags"), nullable=False),
        Column("pinned", Boolean, nullable=False),
        Column("unique_bytes", WholeNumber("unique bytes")),
        Column("health", ExactText("health", 32), nullable=False),
        Column("verified_at", Double, nullable=False),
        Column("state", ExactText("state", 32), nullable=False),
        Column("deleted_at", Double),
        ForeignKeyConstraint(["experiment_id"], ["experiments.id"]),
        indexes={
            "ix_checkpoints_newest": ("experiment_id", "state", *_NEWEST),
            "ix_checkpoints_type": ("experiment_id", "state", "checkpoint_type", *_NEWEST),
            "ix_checkpoints_best_loss": ("experiment_id", "is_best_loss", *_NEWEST),
            "ix_checkpoints_best_val_loss": ("experiment_id", "is_best_val_loss", *_NEWEST),
            "ix_checkpoints_best_metric": ("experiment_id", "is_best_metric", *_NEWEST),
            "ix_checkpoints_verified": ("state", "verified_at", "id"),
        },
        **OPTIONS,
    )


def downgrade() -> None:
    """Remove everything."""
    drop_tables(["experiment_metrics", "metric_keys", "checkpoints", "experiments"])
