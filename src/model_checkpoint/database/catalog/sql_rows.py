"""SQL rows: rows of any table of any database, through the database library; a ``TableRows``."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Select,
    Table,
    TextualSelect,
    Update,
    bindparam,
    column,
    insert,
    select,
    text,
)
from sqlalchemy.types import TypeEngine

from model_checkpoint.database.models import Base
from model_checkpoint.database.opening.prepared_statements import execute, execute_each, insert_rows
from model_checkpoint.database.opening.sqlite_files import driver_of
from model_checkpoint.database.table_rows import batched, in_parts
from model_checkpoint.database.values.column_types import ExactText
from model_checkpoint.database.values.driver_rows import SQLITE_CLOCK, fetched_rows, finding_text, run_text

_CLOCKS = {
    "sqlite": SQLITE_CLOCK,
    "postgresql": "extract(epoch from clock_timestamp())",
    "mysql": "unix_timestamp(sysdate(6))",
    "mariadb": "unix_timestamp(sysdate(6))",
}
# In one statement of SQLite: its driver lets the other threads run with each, so one a row would make the program that
# logs and the thread that writes take turns row by row, at ten times the cost of the row.
_TOGETHER = 128
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class SqlRows:
    """The rows of a database in a transaction of ours; a :class:`~.table_rows.TableRows`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._driver = driver_of(connection)

    @property
    def clock(self) -> str:
        """What the time is called; ours where we do not know how to ask."""
        return _CLOCKS.get(self._connection.dialect.name, repr(time.time()))

    def query(self, text: str, values: Mapping[str, Any]) -> list[Mapping[Any, Any]]:
        """The rows of a question."""
        return [*chain.from_iterable(self._queried(text, part) for part in in_parts(values))]

    def _queried(self, text: str, values: Mapping[str, Any]) -> Iterator[Mapping[Any, Any]]:
        if self._driver is not None:
            return iter(fetched_rows(run_text(self._driver, text, values)))
        asked = (text, _lists_of(values))
        known = _ordered.get(asked)
        result = self._connection.execute(_question(*asked) if known is None else known, values)
        if known is None:
            _ordered[asked] = _in_order(*asked, result.keys())
        return iter(result.mappings())

    def scan(self, text: str, values: Mapping[str, Any]) -> Any:
        """The driver's own cursor of a question."""
        if self._driver is not None:
            return run_text(self._driver, text, values)
        return self._connection.execute(_question(text, ()), values).cursor

    def execute(self, text: str, values: Mapping[str, Any]) -> int:
        """Carry out a change."""
        if self._driver is not None:
            return run_text(self._driver, text, values).rowcount
        return self._connection.execute(_order(text), values).rowcount

    def find(
        self, table: str, same: Mapping[str, Any], *, columns: Sequence[str] = (), lock: bool = False
    ) -> list[Mapping[Any, Any]]:
        """The whole rows, or some columns; if ``lock``, whoever changes them is waited for."""
        names = tuple(columns) or _columns(table)
        if self._driver is not None:
            return self.query(finding_text(table, same, names), same)
        found: list[Mapping[Any, Any]] = []
        for part in in_parts(same):
            statement = _finding(table, _told_apart(part), names, lock=lock)
            found += self._connection.execute(statement, _bound(part)).mappings()
        return found

    def lock(self, table: str, same: Mapping[str, Any]) -> None:
        """Wait for whoever changes these rows; a SQLite file has one writer anyway."""
        if self._connection.dialect.name != "sqlite":
            self.find(table, same, columns=_keys(table), lock=True)

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put down rows that are not there."""
        insert_rows(self._connection, Base.metadata.tables[table], rows)

    def insert_missing(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put down what is not there; where a database cannot say that, a clash runs the transaction again."""
        self._connection.execute(_adding(table, self._connection.dialect.name), [dict(row) for row in rows])

    def append(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Hand the rows to the driver as they are: this is where the time goes."""
        dialect = self._connection.dialect
        mark = _MARKS.get(dialect.paramstyle)
        if not rows:
            return
        if mark is None:
            told = [dict(zip(columns, row, strict=True)) for row in rows]
            self._connection.execute(insert(Base.metadata.tables[table]), told)
            return
        quote = dialect.identifier_preparer.quote
        into = f"INSERT INTO {quote(table)} ({', '.join(map(quote, columns))}) VALUES "
        one = f"({', '.join([mark] * len(columns))})"
        if dialect.name != "sqlite":
            self._connection.exec_driver_sql(into + one, list(rows))
            return
        for some in batched(rows, _TOGETHER):
            self._connection.exec_driver_sql(into + ", ".join([one] * len(some)), tuple(chain.from_iterable(some)))

    def update(self, table: str, same: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        """Let rows have these values."""
        told = {"to_" + name: value for name, value in values.items()}
        return execute(self._connection, _updating(table, _told_apart(same), tuple(values)), told | _bound(same))

    def update_each(self, table: str, keys: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Let each row that has the keys of one of these have the rest of it."""
        if not rows:
            return
        same = tuple((key, None) for key in keys)
        places = {name: f"{'of' if name in keys else 'to'}_{name}" for name in rows[0]}
        rest = tuple(name for name in places if name not in keys)
        told = [{places[name]: value for name, value in row.items()} for row in rows]
        execute_each(self._connection, _updating(table, same, rest), told)

    def delete(self, table: str, same: Mapping[str, Any]) -> int:
        """Remove rows."""
        if not _lists_of(same):
            return execute(self._connection, _deleting(table, _told_apart(same)), _bound(same))
        parts = [(_deleting(table, _told_apart(part)), _bound(part)) for part in in_parts(same)]
        return sum(self._connection.execute(statement, bound).rowcount for statement, bound in parts)


_LIST = "list"
_Same = tuple[tuple[str, bool | str | None], ...]  # columns; of a flag what it is, as an index may have one kind only


def _told_apart(same: Mapping[str, Any]) -> _Same:
    return tuple([(name, _kind(value)) for name, value in same.items()])


def _kind(value: Any) -> bool | str | None:
    if value is True or value is False:
        return bool(value)
    return _LIST if value.__class__ is list else None


def _bound(same: Mapping[str, Any]) -> dict[str, Any]:
    return {"of_" + name: value for name, value in same.items() if value is not True and value is not False}


def _lists_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple([name for name, value in values.items() if value.__class__ is list])


# Statements are made once: to make one, and to find out that it is known, takes longer than to run it.
@cache
def _columns(table: str) -> tuple[str, ...]:
    return tuple(column.name for column in Base.metadata.tables[table].columns)


@cache
def _keys(table: str) -> tuple[str, ...]:
    return tuple(column.name for column in Base.metadata.tables[table].primary_key)


@cache
def _finding(table: str, same: _Same, names: tuple[str, ...], *, lock: bool) -> Select[Any]:
    kept = Base.metadata.tables[table]
    found = select(*(kept.c[name] for name in names)).where(*_equal(kept, same))
    if not lock:
        return found
    return found.order_by(*kept.primary_key).with_for_update(key_share=True)  # everybody waits in the one order


@cache
def _updating(table: str, same: _Same, names: tuple[str, ...]) -> Update:
    kept = Base.metadata.tables[table]
    return kept.update().where(*_equal(kept, same)).values({name: bindparam(f"to_{name}") for name in names})


@cache
def _deleting(table: str, same: _Same) -> Delete:
    kept = Base.metadata.tables[table]
    return kept.delete().where(*_equal(kept, same))


@cache
def _adding(table: str, dialect: str) -> Any:
    kept = Base.metadata.tables[table]
    if dialect == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(kept).on_conflict_do_nothing()
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(kept).on_conflict_do_nothing()
    return insert(kept).prefix_with("IGNORE") if dialect in ("mysql", "mariadb") else insert(kept)


def _equal(table: Table, same: _Same) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    for name, kind in same:
        column = table.c[name]
        if kind is _LIST:
            found.append(column.in_(bindparam(f"of_{name}", expanding=True)))
        else:
            found.append(column == (bindparam(f"of_{name}") if kind is None else kind))
    return found


_PLACE = re.compile(r"(?<!:):(\w+)")


@lru_cache(maxsize=256)
def _question(text: str, lists: tuple[str, ...]) -> TextualSelect:
    """A question with the types of what it is told and of what it answers, by the names of both."""
    question: TextualSelect = _order(text, lists).columns(**_kinds())
    return question


# Questions that were asked before: whose columns are known by their places, which is found out faster than by names.
_ordered: dict[tuple[str, tuple[str, ...]], TextualSelect] = {}


def _in_order(text: str, lists: tuple[str, ...], names: Iterable[str]) -> TextualSelect:
    kinds = _kinds()
    question: TextualSelect = _order(text, lists).columns(*(column(name, kinds.get(name)) for name in names))
    return question


@lru_cache(maxsize=256)
def _order(words: str, lists: tuple[str, ...] = ()) -> Any:
    kinds = _kinds()
    places = [
        bindparam(name, type_=kinds.get(name), expanding=name in lists)
        for name in sorted(set(_PLACE.findall(words)))
        if name in kinds or name in lists
    ]
    return text(words).bindparams(*places)


@cache
def _kinds() -> dict[str, TypeEngine[Any]]:
    """The type of a column by its name; where tables differ, the one that some database keeps as bytes."""
    every = [column for table in Base.metadata.sorted_tables for column in table.columns]
    every.sort(key=lambda column: isinstance(column.type, ExactText))
    named = {column.name: column.type for column in every}
    return {**named, **dict.fromkeys(("run", "newest_id", "safe_id"), named["id"])}
