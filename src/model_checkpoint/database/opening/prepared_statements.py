"""Prepared inserts: rows put down by statements whose text and conversions are worked out once for each database.

For one row that work takes several times as long as the row itself, and every save puts down four.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Dialect, Table, insert

_Convert = Callable[[Any], Any]


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Put down ``rows``, which all have the same columns and leave out none that has no default of the database."""
    if not rows:
        return
    text, places = _prepared(table, tuple(rows[0]), connection.dialect)
    filled = [{name: convert(row[name]) for name, convert in places} for row in rows]
    by_place: Any = filled if not connection.dialect.positional else [tuple(row.values()) for row in filled]
    connection.exec_driver_sql(text, by_place if len(rows) > 1 else by_place[0])


@lru_cache(maxsize=64)
def _prepared(table: Table, columns: tuple[str, ...], dialect: Dialect) -> tuple[str, tuple[tuple[str, _Convert], ...]]:
    """The statement, and what goes where in it and how."""
    statement: Any = insert(table).inline().compile(dialect=dialect, column_keys=columns)
    missing = {*statement.binds} - {*columns}
    if missing:
        raise TypeError(f"{table.name}: a row must have {', '.join(sorted(missing))}")
    names = statement.positiontup or tuple(statement.binds)
    kinds = {name: statement.binds[name].type.dialect_impl(dialect) for name in names}
    return statement.string, tuple((name, kinds[name].bind_processor(dialect) or _same) for name in names)


def _same(value: Any) -> Any:
    return value
