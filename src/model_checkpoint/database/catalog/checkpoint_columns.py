"""Checkpoint columns: records put down as rows, with the index the best are found by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select

from model_checkpoint.database.models import CheckpointMetricRow, CheckpointRow, table_of
from model_checkpoint.database.opening.prepared_statements import insert_rows
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.database.values.checkpoint_scores import index_rows
from model_checkpoint.database.values.row_records import row_of

_table, _metrics = table_of(CheckpointRow), table_of(CheckpointMetricRow)


def store_checkpoints(connection: Connection, checkpoints: Sequence[Checkpoint], keys: Mapping[str, int]) -> None:
    """Put rows and index down; ``keys`` has the number of every metric they name."""
    _store(connection, [row_of(one) for one in checkpoints])
    _index(connection, checkpoints, keys)


def insert_checkpoint(
    connection: Connection, checkpoint: Checkpoint, keys: Mapping[str, int], flags: Mapping[str, bool]
) -> None:
    """Put down a row that is known to be new, with the best flags it won."""
    insert_rows(connection, _table, [{**row_of(checkpoint), **flags}])
    _index(connection, [checkpoint], keys)


def _index(connection: Connection, checkpoints: Sequence[Checkpoint], keys: Mapping[str, int]) -> None:
    insert_rows(connection, _metrics, [row for one in checkpoints for row in index_rows(one, keys)])


def _store(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    there = select(_table.c.id).where(_table.c.id.in_([row["id"] for row in rows])).order_by(_table.c.id)
    known = set(connection.execute(there.with_for_update()).scalars())
    fresh = [dict(row) for row in rows if row["id"] not in known]
    insert_rows(connection, _table, fresh)
    if known:
        changed = [{**row, "of_id": row["id"]} for row in rows if row["id"] in known]
        connection.execute(_table.update().where(_table.c.id == bindparam("of_id")), changed)
        connection.execute(delete(_metrics).where(_metrics.c.checkpoint_id.in_(known)))
