"""Checkpoint columns: a record as a row, and the index the best are found by."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select

from model_checkpoint.database.models import CheckpointMetricRow, CheckpointRow, table_of
from model_checkpoint.database.opening.prepared_statements import insert_rows
from model_checkpoint.database.records import COMMITTED, Checkpoint
from model_checkpoint.database.values.checkpoint_scores import scores_of
from model_checkpoint.database.values.exact_numbers import as_float, split
from model_checkpoint.database.values.json_values import as_mapping, as_words

FLAGS = ("is_best_loss", "is_best_val_loss", "is_best_metric")
_table, _metrics = table_of(CheckpointRow), table_of(CheckpointMetricRow)
_FIELDS = tuple(field.name for field in dataclasses.fields(Checkpoint))
_INDEXED = ("checkpoint_id", "key", "experiment_id", "grade", "value", "step", "created_at")


def store_checkpoints(connection: Connection, checkpoints: Sequence[Checkpoint], keys: Mapping[str, int]) -> None:
    """Put rows and index down; ``keys`` has the number of every metric they name."""
    _store(connection, [_row(one) for one in checkpoints])
    _index(connection, checkpoints, keys)


def insert_checkpoint(
    connection: Connection, checkpoint: Checkpoint, keys: Mapping[str, int], flags: Mapping[str, bool]
) -> None:
    """Put down a row that is known to be new, with the best flags it won."""
    insert_rows(connection, _table, [{**_row(checkpoint), **flags}])
    _index(connection, [checkpoint], keys)


def _index(connection: Connection, checkpoints: Sequence[Checkpoint], keys: Mapping[str, int]) -> None:
    entries = [
        dict(
            zip(_INDEXED, (one.id, keys[name], one.experiment_id, *split(score), one.step, one.created_at), strict=True)
        )
        for one in checkpoints
        if one.state == COMMITTED  # what is deleted is nobody's best
        for name, score in sorted(scores_of(one).items())
    ]
    insert_rows(connection, _metrics, entries)


def _store(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    there = select(_table.c.id).where(_table.c.id.in_([row["id"] for row in rows])).order_by(_table.c.id)
    known = set(connection.execute(there.with_for_update()).scalars())
    fresh = [dict(row) for row in rows if row["id"] not in known]
    insert_rows(connection, _table, fresh)
    if known:
        changed = [{**row, "of_id": row["id"]} for row in rows if row["id"] in known]
        connection.execute(_table.update().where(_table.c.id == bindparam("of_id")), changed)
        connection.execute(delete(_metrics).where(_metrics.c.checkpoint_id.in_(known)))


def _row(checkpoint: Checkpoint) -> dict[str, Any]:
    row = {name: getattr(checkpoint, name) for name in _FIELDS}
    for name in ("loss", "val_loss"):
        value = row[name]
        pair = (None, None) if value is None else split(as_float(value, f"checkpoint {checkpoint.id}: {name}"))
        row[f"{name}_grade"], row[name] = pair
    metrics = as_mapping(checkpoint.metrics, "metrics")
    row["metrics"] = {k: v if isinstance(v, (int, float)) else as_float(v, k) for k, v in metrics.items()}
    row["metadata"] = as_mapping(checkpoint.metadata, "metadata")
    lists = {name: as_words(row[name], name) for name in ("parts", "tags")}
    return {**row, **lists, "verified_at": checkpoint.verified_at or 0.0}
