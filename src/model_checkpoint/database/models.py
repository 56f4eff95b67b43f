"""Models: the tables of the catalog. :mod:`.records` has what they are handed out as.

A change here needs a revision in :mod:`.migrations`; a test compares what the two make.
"""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import Boolean, Double, ForeignKey, Index, SmallInteger, Table, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from model_checkpoint.database.values.column_types import OPTIONS, BigInt, typed


class Base(DeclarativeBase):
    """All tables of the catalog."""


def table_of(model: type[Base]) -> Table:
    """The table behind a model.

    Example:
        >>> table_of(ExperimentRow).name
        'experiments'
    """
    return cast(Table, model.__table__)


def flag_index(kind: str) -> Index:
    """The checkpoints of a run that have a best flag: where a database can, those alone, as most saves win none."""
    flag = f"is_best_{kind}"
    only: dict[str, Any] = {"sqlite_where": text(f"{flag} = 1"), "postgresql_where": text(flag)}
    return Index(f"ix_checkpoints_best_{kind}", "experiment_id", flag, "step", "created_at", "id", **only)


class ExperimentRow(Base):
    """One run. Points refer to its number, people and checkpoints to its id."""

    __tablename__ = "experiments"

    number: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(typed("experiments", "id"), unique=True)
    name: Mapped[str] = mapped_column(typed("experiments", "name"))
    project_name: Mapped[str] = mapped_column(typed("experiments", "project_name"))
    status: Mapped[str] = mapped_column(typed("experiments", "status"))
    start_time: Mapped[float] = mapped_column(typed("experiments", "start_time"))
    end_time: Mapped[float | None] = mapped_column(typed("experiments", "end_time"))
    step: Mapped[int] = mapped_column(typed("experiments", "step"))
    notes: Mapped[str] = mapped_column(typed("experiments", "notes"))
    tags: Mapped[list[str]] = mapped_column(typed("experiments", "tags"))
    config: Mapped[dict[str, Any]] = mapped_column(typed("experiments", "config"))

    __table_args__ = (
        Index("ix_experiments_newest", "start_time", "id"),
        Index("ix_experiments_project", "project_name", "start_time", "id"),
        Index("ix_experiments_status", "status", "start_time", "id"),
        OPTIONS,
    )


class HeartbeatRow(Base):
    """When a run was last heard of, by the clock of the database; apart, since it changes all the time."""

    __tablename__ = "heartbeats"

    experiment: Mapped[int] = mapped_column(BigInt, ForeignKey(ExperimentRow.number), primary_key=True)
    last_seen: Mapped[float] = mapped_column(Double)
    last_step_at: Mapped[float | None] = mapped_column(Double)
    step: Mapped[int | None] = mapped_column(typed("heartbeats", "step"))

    __table_args__ = (OPTIONS,)


class CheckpointRow(Base):
    """One checkpoint; ``loss`` and ``val_loss`` are pairs, as in :mod:`.values.exact_numbers`."""

    __tablename__ = "checkpoints"

    id: Mapped[str] = mapped_column(typed("checkpoints", "id"), primary_key=True)
    experiment_id: Mapped[str] = mapped_column(typed("checkpoints", "experiment_id"), ForeignKey(ExperimentRow.id))
    epoch: Mapped[int | None] = mapped_column(typed("checkpoints", "epoch"))
    step: Mapped[int] = mapped_column(typed("checkpoints", "step"))
    checkpoint_type: Mapped[str] = mapped_column(typed("checkpoints", "checkpoint_type"))
    file_path: Mapped[str] = mapped_column(typed("checkpoints", "file_path"))
    file_size: Mapped[int] = mapped_column(typed("checkpoints", "file_size"))
    checksum: Mapped[str] = mapped_column(typed("checkpoints", "checksum"))
    model_name: Mapped[str] = mapped_column(typed("checkpoints", "model_name"))
    loss_grade: Mapped[int | None] = mapped_column(SmallInteger)
    loss: Mapped[float | None] = mapped_column(Double)
    val_loss_grade: Mapped[int | None] = mapped_column(SmallInteger)
    val_loss: Mapped[float | None] = mapped_column(Double)
    notes: Mapped[str] = mapped_column(typed("checkpoints", "notes"))
    is_best_loss: Mapped[bool] = mapped_column(Boolean)
    is_best_val_loss: Mapped[bool] = mapped_column(Boolean)
    is_best_metric: Mapped[bool] = mapped_column(Boolean)
    metrics: Mapped[dict[str, float]] = mapped_column(typed("checkpoints", "metrics"))
    metadata_: Mapped[dict[str, Any]] = mapped_column(
        "metadata", typed("checkpoints", "metadata")
    )  # Base has a `metadata`
    created_at: Mapped[float] = mapped_column(typed("checkpoints", "created_at"))
    name: Mapped[str] = mapped_column(typed("checkpoints", "name"))
    root: Mapped[str] = mapped_column(typed("checkpoints", "root"))
    backend: Mapped[str] = mapped_column(typed("checkpoints", "backend"))
    parts: Mapped[list[str]] = mapped_column(typed("checkpoints", "parts"))
    tags: Mapped[list[str]] = mapped_column(typed("checkpoints", "tags"))
    pinned: Mapped[bool] = mapped_column(Boolean)
    unique_bytes: Mapped[int | None] = mapped_column(typed("checkpoints", "unique_bytes"))
    health: Mapped[str] = mapped_column(typed("checkpoints", "health"))
    verified_at: Mapped[float] = mapped_column(
        typed("checkpoints", "verified_at")
    )  # 0: never, so that those come first
    state: Mapped[str] = mapped_column(typed("checkpoints", "state"))
    deleted_at: Mapped[float | None] = mapped_column(typed("checkpoints", "deleted_at"))

    __table_args__ = (
        Index("ix_checkpoints_newest", "experiment_id", "state", "step", "created_at", "id"),
        Index("ix_checkpoints_type", "experiment_id", "state", "checkpoint_type", "step", "created_at", "id"),
        flag_index("loss"),
        flag_index("val_loss"),
        flag_index("metric"),
        Index("ix_checkpoints_verified", "state", "verified_at", "id"),
        OPTIONS,
    )


class MetricKeyRow(Base):
    """The name of a metric, once, so that points carry a number; never removed."""

    __tablename__ = "metric_keys"

    id: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    name: Mapped[str] = mapped_column(typed("metric_keys", "name"), unique=True)

    __table_args__ = (OPTIONS,)


class MetricPointRow(Base):
    """One point; the same one twice is one row. Its summary, written with it, has the foreign keys for both."""

    __tablename__ = "experiment_metrics"

    experiment: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    key: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    step: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
    at: Mapped[float] = mapped_column(Double, primary_key=True)
    grade: Mapped[int] = mapped_column(SmallInteger)
    value: Mapped[float] = mapped_column(Double)

    __table_args__ = ({"sqlite_with_rowid": False, **OPTIONS},)


class MetricSummaryRow(Base):
    """All points of one series in one row; whoever adds points holds its lock."""

    __tablename__ = "metric_summaries"

    experiment: Mapped[int] = mapped_column(BigInt, ForeignKey(ExperimentRow.number), primary_key=True)
    key: Mapped[int] = mapped_column(BigInt, ForeignKey(MetricKeyRow.id), primary_key=True)
    count: Mapped[int] = mapped_column(BigInt)
    nan_count: Mapped[int] = mapped_column(BigInt)
    last_step: Mapped[int] = mapped_column(BigInt)
    last_at: Mapped[float] = mapped_column(Double)
    last_grade: Mapped[int] = mapped_column(SmallInteger)
    last_value: Mapped[float] = mapped_column(Double)
    min_grade: Mapped[int | None] = mapped_column(SmallInteger)
    min_value: Mapped[float | None] = mapped_column(Double)
    min_step: Mapped[int | None] = mapped_column(BigInt)
    max_grade: Mapped[int | None] = mapped_column(SmallInteger)
    max_value: Mapped[float | None] = mapped_column(Double)
    max_step: Mapped[int | None] = mapped_column(BigInt)

    __table_args__ = ({"sqlite_with_rowid": False, **OPTIONS},)


class CheckpointMetricRow(Base):
    """A metric of a checkpoint that is not deleted: the index the best are found by, the newest among equals."""

    __tablename__ = "checkpoint_metrics"

    checkpoint_id: Mapped[str] = mapped_column(
        typed("checkpoint_metrics", "checkpoint_id"), ForeignKey(CheckpointRow.id, ondelete="CASCADE"), primary_key=True
    )
    key: Mapped[int] = mapped_column(BigInt, ForeignKey(MetricKeyRow.id), primary_key=True)
    experiment_id: Mapped[str] = mapped_column(typed("checkpoint_metrics", "experiment_id"))
    grade: Mapped[int] = mapped_column(SmallInteger)
    value: Mapped[float] = mapped_column(Double)
    step: Mapped[int] = mapped_column(BigInt)
    created_at: Mapped[float] = mapped_column(Double)

    __table_args__ = ({"sqlite_with_rowid": False, **OPTIONS},)


_best = CheckpointMetricRow
Index(
    "ix_checkpoint_metrics_lowest",
    *(_best.experiment_id, _best.key, _best.grade, _best.value),
    *(_best.step.desc(), _best.created_at.desc(), _best.checkpoint_id.desc()),
)
Index(
    "ix_checkpoint_metrics_highest",
    *(_best.experiment_id, _best.key, _best.grade, _best.value, _best.step, _best.created_at, _best.checkpoint_id),
)


class AuditRow(Base):
    """One thing that was done; triggers refuse to change or remove it."""

    __tablename__ = "audit_log"

    number: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(typed("audit_log", "id"), unique=True)
    at: Mapped[float] = mapped_column(typed("audit_log", "at"))
    actor: Mapped[str] = mapped_column(typed("audit_log", "actor"))
    action: Mapped[str] = mapped_column(typed("audit_log", "action"))
    outcome: Mapped[str] = mapped_column(typed("audit_log", "outcome"))
    subject: Mapped[str] = mapped_column(typed("audit_log", "subject"))
    details: Mapped[dict[str, Any]] = mapped_column(typed("audit_log", "details"))

    __table_args__ = (
        Index("ix_audit_subject", "subject", "number"),
        Index("ix_audit_action", "action", "number"),
        OPTIONS,
    )


class EdgeRow(Base):
    """What came out of what; no foreign keys, since it outlives both."""

    __tablename__ = "lineage_edges"

    parent: Mapped[str] = mapped_column(typed("lineage_edges", "parent"), primary_key=True)
    child: Mapped[str] = mapped_column(typed("lineage_edges", "child"), primary_key=True)
    kind: Mapped[str] = mapped_column(typed("lineage_edges", "kind"), primary_key=True)
    step: Mapped[int | None] = mapped_column(typed("lineage_edges", "step"))
    created_at: Mapped[float] = mapped_column(typed("lineage_edges", "created_at"))

    __table_args__ = (Index("ix_edges_child", "child"), {"sqlite_with_rowid": False, **OPTIONS})


class IntegrityRow(Base):
    """What one verification found."""

    __tablename__ = "integrity_records"

    id: Mapped[str] = mapped_column(typed("integrity_records", "id"), primary_key=True)
    checkpoint_id: Mapped[str] = mapped_column(
        typed("integrity_records", "checkpoint_id"), ForeignKey(CheckpointRow.id, ondelete="CASCADE")
    )
    outcome: Mapped[str] = mapped_column(typed("integrity_records", "outcome"))
    method: Mapped[str] = mapped_column(typed("integrity_records", "method"))
    checked_at: Mapped[float] = mapped_column(typed("integrity_records", "checked_at"))
    seconds: Mapped[float] = mapped_column(typed("integrity_records", "seconds"))
    bytes_read: Mapped[int] = mapped_column(typed("integrity_records", "bytes_read"))
    details: Mapped[dict[str, Any]] = mapped_column(typed("integrity_records", "details"))

    __table_args__ = (
        Index("ix_integrity_checkpoint", "checkpoint_id", "checked_at", "id"),
        Index("ix_integrity_newest", "checked_at", "id"),
        OPTIONS,
    )


class IntentRow(Base):
    """A deletion that was decided; ``finished_at`` is 0 as long as it is open."""

    __tablename__ = "deletion_intents"

    id: Mapped[str] = mapped_column(typed("deletion_intents", "id"), primary_key=True)
    checkpoint_id: Mapped[str] = mapped_column(typed("deletion_intents", "checkpoint_id"))
    action: Mapped[str] = mapped_column(typed("deletion_intents", "action"))
    plan_id: Mapped[str] = mapped_column(typed("deletion_intents", "plan_id"))
    details: Mapped[dict[str, Any]] = mapped_column(typed("deletion_intents", "details"))
    created_at: Mapped[float] = mapped_column(typed("deletion_intents", "created_at"))
    finished_at: Mapped[float] = mapped_column(typed("deletion_intents", "finished_at"))
    outcome: Mapped[str] = mapped_column(typed("deletion_intents", "outcome"))

    __table_args__ = (
        Index("ix_intents_open", "finished_at", "created_at", "id"),
        Index("ix_intents_checkpoint", "checkpoint_id"),
        OPTIONS,
    )
