"""Summaries of series, the index of the best, heartbeats; filled from what is there."""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import (
    Column,
    Connection,
    Double,
    ForeignKeyConstraint,
    SmallInteger,
    case,
    column,
    func,
    insert,
    select,
    table,
)

from model_checkpoint.database.schema.ddl_steps import drop_tables, make_table
from model_checkpoint.database.values.column_types import OPTIONS, BigInt, ExactText, PlainData, WholeNumber
from model_checkpoint.database.values.exact_numbers import NOT_A_NUMBER, split

revision, down_revision = "0002", "0001"
_SCORE = ("experiment_id", "key", "grade", "value")
_NEWEST = ("step", "created_at", "checkpoint_id")
_AT_ONCE = 500
_ID, _EXPERIMENT_ID = ExactText("checkpoint id", 64), ExactText("experiment id", 64)

# the tables as this revision knows them, as far as it reads and writes them
_points = table("experiment_metrics", *(column(name) for name in ("experiment", "key", "step", "at", "grade", "value")))
_summaries = table(
    "metric_summaries",
    *(column(name) for name in ("experiment", "key", "count", "nan_count")),
    *(column(f"last_{name}") for name in ("step", "at", "grade", "value")),
    *(column(f"{end}_{name}") for end in ("min", "max") for name in ("grade", "value", "step")),
)
_checkpoints = table(
    "checkpoints",
    column("id", _ID),
    column("experiment_id", _EXPERIMENT_ID),
    column("state", ExactText("state", 32)),
    column("metrics", PlainData("metrics")),
    *(column(name) for name in ("step", "created_at", "loss_grade", "loss", "val_loss_grade", "val_loss")),
)
_index = table(
    "checkpoint_metrics",
    column("checkpoint_id", _ID),
    column("experiment_id", _EXPERIMENT_ID),
    *(column(name) for name in ("key", "grade", "value", "step", "created_at")),
)
_names = table("metric_keys", column("id"), column("name", ExactText("metric name", 250)))


def upgrade() -> None:
    """Make the tables and fill them."""
    make_table(
        "heartbeats",
        Column("experiment", BigInt, primary_key=True, autoincrement=False),
        Column("last_seen", Double, nullable=False),
        Column("last_step_at", Double),
        Column("step", WholeNumber("step")),
        ForeignKeyConstraint(["experiment"], ["experiments.number"]),
        **OPTIONS,
    )
    make_table(
        "metric_summaries",
        Column("experiment", BigInt, primary_key=True, autoincrement=False),
        Column("key", BigInt, primary_key=True, autoincrement=False),
        *(Column(name, BigInt, nullable=False) for name in ("count", "nan_count", "last_step")),
        Column("last_at", Double, nullable=False),
        Column("last_grade", SmallInteger, nullable=False),
        Column("last_value", Double, nullable=False),
        *(
            Column(f"{end}_{name}", kind)
            for end in ("min", "max")
            for name, kind in (("grade", SmallInteger), ("value", Double), ("step", BigInt))
        ),
        ForeignKeyConstraint(["experiment"], ["experiments.number"]),
        ForeignKeyConstraint(["key"], ["metric_keys.id"]),
        sqlite_with_rowid=False,
        **OPTIONS,
    )
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
        **OPTIONS,
    )
    _sum_up(op.get_bind())
    _index_checkpoints(op.get_bind())


def _sum_up(connection: Connection) -> None:
    points = _points
    connection.execute(_summaries.delete())
    odd = func.sum(case((points.c.grade == NOT_A_NUMBER, 1), else_=0))
    each = select(points.c.experiment, points.c.key, func.count(), odd).group_by(points.c.experiment, points.c.key)
    for experiment, key, count, not_numbers in connection.execute(each).all():
        same = select(points).where(points.c.experiment == experiment, points.c.key == key)
        last = connection.execute(same.order_by(points.c.step.desc(), points.c.at.desc()).limit(1)).one()
        row = {"experiment": experiment, "key": key, "count": count, "nan_count": int(not_numbers)}
        row |= {"last_step": last.step, "last_at": last.at, "last_grade": last.grade, "last_value": last.value}
        real = same.where(points.c.grade < NOT_A_NUMBER)
        low = (points.c.grade, points.c.value, points.c.step)
        high = (points.c.grade.desc(), points.c.value.desc(), points.c.step)
        for end, order in (("min", low), ("max", high)):
            found = connection.execute(real.order_by(*order).limit(1)).first()
            extreme = (None, None, None) if found is None else (found.grade, found.value, found.step)
            row |= dict(zip((f"{end}_grade", f"{end}_value", f"{end}_step"), extreme, strict=True))
        connection.execute(insert(_summaries).values(row))


def _index_checkpoints(connection: Connection) -> None:
    connection.execute(_index.delete())
    last = ""
    while True:
        some = select(_checkpoints).where(_checkpoints.c.id > last, _checkpoints.c.state == "committed")
        rows = connection.execute(some.order_by(_checkpoints.c.id).limit(_AT_ONCE)).mappings().all()
        if not rows:
            return
        last = rows[-1]["id"]
        scores = {row["id"]: _scores(row) for row in rows}
        keys = _keys(connection, sorted({name for found in scores.values() for name in found}))
        entries = [
            {
                **{"checkpoint_id": row["id"], "experiment_id": row["experiment_id"], "key": keys[name]},
                **{"grade": pair[0], "value": pair[1], "step": row["step"], "created_at": row["created_at"]},
            }
            for row in rows
            for name, pair in scores[row["id"]].items()
        ]
        if entries:
            connection.execute(insert(_index), entries)


def _scores(row: Any) -> dict[str, tuple[int, float]]:
    scores = {name: split(float(value)) for name, value in row["metrics"].items()}
    for name in ("loss", "val_loss"):
        if row[f"{name}_grade"] is not None:
            scores[name] = (row[f"{name}_grade"], row[name])
    return scores


def _keys(connection: Connection, names: list[str]) -> dict[str, int]:
    there = {row.name: row.id for row in connection.execute(select(_names))}
    fresh = [{"name": name} for name in names if name not in there]
    if not fresh:
        return there
    connection.execute(insert(_names), fresh)
    return {row.name: row.id for row in connection.execute(select(_names))}


def downgrade() -> None:
    """Remove the tables; the next upgrade fills them again."""
    drop_tables(["checkpoint_metrics", "metric_summaries", "heartbeats"])
