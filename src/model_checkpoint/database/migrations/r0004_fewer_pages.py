"""Fewer pages: a save touches only what it changes.

Indexes of best flags hold only what has the flag, where a database can say that; on SQLite two tables are kept in the
order of their keys alone. MySQL can neither, and is left as it is.
"""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import Column, Double, ForeignKeyConstraint, SmallInteger, inspect, text

from model_checkpoint.database.schema.ddl_steps import make_table
from model_checkpoint.database.values.column_types import OPTIONS, BigInt, ExactText, WholeNumber

revision, down_revision = "0004", "0003"
_KINDS = ("loss", "val_loss", "metric")
_SCORE = ("experiment_id", "key", "grade", "value")
_NEWEST = ("step", "created_at", "checkpoint_id")


def upgrade() -> None:
    """Make indexes and tables smaller."""
    _index_flags(partial=True)
    _rebuild(with_rowid=False)


def downgrade() -> None:
    """Make them as they were."""
    _index_flags(partial=False)
    _rebuild(with_rowid=True)


def _index_flags(*, partial: bool) -> None:
    if op.get_bind().dialect.name not in ("sqlite", "postgresql"):
        return
    for kind in _KINDS:
        flag, name = f"is_best_{kind}", f"ix_checkpoints_best_{kind}"
        only: dict[str, Any] = {"sqlite_where": text(f"{flag} = 1"), "postgresql_where": text(flag)} if partial else {}
        op.drop_index(name, "checkpoints")
        op.create_index(name, "checkpoints", ["experiment_id", flag, "step", "created_at", "id"], **only)


def _rebuild(*, with_rowid: bool) -> None:
    if op.get_bind().dialect.name != "sqlite":
        return
    options: dict[str, Any] = {**OPTIONS, "sqlite_with_rowid": with_rowid}
    _set_aside("checkpoint_metrics")
    make_table(
        "checkpoint_metrics",
        Column("checkpoint_id", ExactText("checkpoint id", 64), primary_key=True),
        Column("key", BigInt, primary_key=True, autoincrement=False),
        Column("experiment_id", ExactText("experiment id", 64), nullable=False),
        Column("grade", SmallInteger, nullable=False),
        Column("value", Double, nullable=False),
        Column("step", BigInt, nullable=False),
        Column("created_at", Double, nullable=False),
        ForeignKeyConstraint(["checkpoint_id"], ["checkpoints.id"], ondelete="CASCADE"),
        ForeignKeyConstraint(["key"], ["metric_keys.id"]),
        indexes={
            "ix_checkpoint_metrics_lowest": (*_SCORE, *(f"{name} DESC" for name in _NEWEST)),
            "ix_checkpoint_metrics_highest": (*_SCORE, *_NEWEST),
        },
        **options,
    )
    _take_over("checkpoint_metrics")
    _set_aside("lineage_edges")
    make_table(
        "lineage_edges",
        Column("parent", ExactText("parent", 64), primary_key=True),
        Column("child", ExactText("child", 64), primary_key=True),
        Column("kind", ExactText("kind", 32), primary_key=True),
        Column("step", WholeNumber("step")),
        Column("created_at", Double, nullable=False),
        indexes={"ix_edges_child": ("child",)},
        **options,
    )
    _take_over("lineage_edges")


def _set_aside(name: str) -> None:
    """Give a table another name, and the names of its indexes free."""
    for index in inspect(op.get_bind()).get_indexes(name):
        op.drop_index(str(index["name"]), name)
    op.rename_table(name, f"{name}_before")


def _take_over(name: str) -> None:
    op.execute(f"INSERT INTO {name} SELECT * FROM {name}_before")
    op.drop_table(f"{name}_before")
