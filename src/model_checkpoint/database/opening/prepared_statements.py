"""Prepared statements: those of every save, whose text and conversions are worked out once for each database.

For one row that work takes several times as long as the row itself. On SQLite they go straight to the driver, which is
ten times faster than the way through an engine; with a server the time is spent on the way there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sqlalchemy import CompoundSelect, Connection, Delete, Dialect, Select, Table, Update, insert

from model_checkpoint.database.opening.sqlite_files import driver_of

_Convert = Callable[[Any], Any]
_Select = Select[Any] | CompoundSelect[Any]
_Named = tuple[tuple[str, _Convert], ...]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The text of a statement, what goes where in it and how, and how what it answers is read."""

    text: str
    places: _Named
    columns: _Named = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)  # what the statement itself says, such as where to begin

    def filled(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        known = {**self.fixed, **values} if self.fixed else values
        return tuple([convert(known[name]) for name, convert in self.places])


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Put down ``rows``, which all have the same columns and leave out none that has no default of the database."""
    if not rows:
        return
    prepared = _insert(table, tuple(rows[0]), connection.dialect)
    driver = driver_of(connection)
    filled = [prepared.filled(row) for row in rows]
    if driver is not None:
        driver.executemany(prepared.text, filled)
        return
    names = [name for name, _ in prepared.places]
    told: Any = filled if connection.dialect.positional else [dict(zip(names, row, strict=True)) for row in filled]
    connection.exec_driver_sql(prepared.text, told if len(rows) > 1 else told[0])


def query(connection: Connection, statement: _Select, values: Mapping[str, Any]) -> list[Mapping[Any, Any]]:
    """The rows of a statement that is kept, and made once; ``values`` are all it is to be told."""
    driver = driver_of(connection)
    if driver is None:
        return [*connection.execute(statement, values).mappings()]
    prepared = _select(statement, connection.dialect)
    return [
        {name: convert(value) for (name, convert), value in zip(prepared.columns, row, strict=True)}
        for row in driver.execute(prepared.text, prepared.filled(values))
    ]


def execute(connection: Connection, statement: Update | Delete, values: Mapping[str, Any]) -> int:
    """Carry out an update or a removal that is kept, and made once; how many rows it met."""
    driver = driver_of(connection)
    if driver is None:
        return connection.execute(statement, values).rowcount
    prepared = _update(statement, connection.dialect)
    met: int = driver.execute(prepared.text, prepared.filled(values)).rowcount
    return met


def execute_each(connection: Connection, statement: Update, rows: Sequence[dict[str, Any]]) -> None:
    """Carry out an update that is kept once for each of ``rows``."""
    driver = driver_of(connection)
    if driver is None:
        connection.execute(statement, rows)
        return
    prepared = _update(statement, connection.dialect)
    driver.executemany(prepared.text, [prepared.filled(row) for row in rows])


@lru_cache(maxsize=64)
def _insert(table: Table, columns: tuple[str, ...], dialect: Dialect) -> _Prepared:
    statement: Any = insert(table).inline().compile(dialect=dialect, column_keys=columns)
    missing = {*statement.binds} - {*columns}
    if missing:
        raise TypeError(f"{table.name}: a row must have {', '.join(sorted(missing))}")
    return _Prepared(statement.string, _places(statement, dialect))


@lru_cache(maxsize=64)
def _select(statement: _Select, dialect: Dialect) -> _Prepared:
    compiled = statement.compile(dialect=dialect)
    columns = tuple((str(column.key), _reading(column.type, dialect)) for column in statement.selected_columns)
    return _Prepared(compiled.string, _places(compiled, dialect), columns, _fixed(compiled))


@lru_cache(maxsize=64)
def _update(statement: Update | Delete, dialect: Dialect) -> _Prepared:
    compiled = statement.compile(dialect=dialect)
    return _Prepared(compiled.string, _places(compiled, dialect), fixed=_fixed(compiled))


def _places(statement: Any, dialect: Dialect) -> _Named:
    names = statement.positiontup or tuple(statement.binds)
    kinds = {name: statement.binds[name].type.dialect_impl(dialect) for name in names}
    return tuple((name, kinds[name].bind_processor(dialect) or _same) for name in names)


def _fixed(statement: Any) -> dict[str, Any]:
    return {name: bind.effective_value for name, bind in statement.binds.items() if not bind.required}


def _reading(kind: Any, dialect: Dialect) -> _Convert:
    convert: _Convert | None = kind.dialect_impl(dialect).result_processor(dialect, None)
    return convert or _same


def _same(value: Any) -> Any:
    return value
