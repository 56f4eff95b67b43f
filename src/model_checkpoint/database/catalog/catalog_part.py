"""Catalog part: what all parts of the catalog share.

Parts are mixed into one class, so that whoever has a connection has all of them; each asks the database only through
``_read`` and ``_write``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Delete, Select, Table, Update, bindparam, insert, select

from model_checkpoint.database.errors import RowRefused
from model_checkpoint.database.models import Base, ExperimentRow, MetricKeyRow, table_of
from model_checkpoint.database.opening.prepared_statements import ask, change, insert_rows
from model_checkpoint.database.opening.transactions import Work
from model_checkpoint.database.telling.table_rows import TableRows, ToldCatalog
from model_checkpoint.errors import WrongReference

T = TypeVar("T")
AT_ONCE = 500  # values in one list of a statement

_experiments, _keys = table_of(ExperimentRow), table_of(MetricKeyRow)


class CatalogPart(ToldCatalog):
    """What the parts stand on; the connection brings the first two."""

    _experiment_numbers: dict[str, int]
    _key_ids: dict[str, int]

    def _read(self, work: Work[T]) -> T:
        raise NotImplementedError

    def _write(self, work: Work[T], *, durable: bool = True) -> T:
        raise NotImplementedError

    def _tell(self, work: Callable[[TableRows], T], *, durable: bool = True) -> T:
        return self._write(lambda connection: work(SqlRows(connection)), durable=durable)

    def _numbers_of(self, experiment_ids: Collection[str]) -> Mapping[str, int]:
        """The numbers of runs, remembered since they never change."""
        missing = sorted(set(experiment_ids) - self._experiment_numbers.keys())
        if missing:
            found = self._read(lambda connection: _looked_up(connection, _experiments.c.number, missing))
            self._experiment_numbers.update(found)
            unknown = [one for one in missing if one not in found]
            if unknown:
                raise RowRefused(f"experiment {unknown[0]!r} is not in the catalog. Save it first.")
        return self._experiment_numbers

    def _number_of(self, experiment_id: str) -> int:
        """The number of a run somebody asks about."""
        try:
            return self._numbers_of([experiment_id])[experiment_id]
        except RowRefused as error:
            raise WrongReference(f"experiment {experiment_id!r} is not in the catalog.") from error

    def _keys_of(self, names: Collection[str]) -> Mapping[str, int]:
        """The numbers of metrics, given to new ones; remembered since they never change."""
        missing = sorted(set(names) - self._key_ids.keys())
        if missing:
            found = self._read(lambda connection: _looked_up(connection, _keys.c.id, missing))
            if len(found) < len(missing):
                found = self._write(lambda connection: made_keys(connection, missing))
            self._key_ids.update(found)
        return self._key_ids

    def _key_of(self, name: str) -> int | None:
        """The number of one metric; None where nobody wrote such a one."""
        if name not in self._key_ids:
            self._key_ids.update(self._read(lambda connection: _looked_up(connection, _keys.c.id, [name])))
        return self._key_ids.get(name)


class SqlRows:
    """The rows of a database in a transaction of ours; a :class:`~.telling.table_rows.TableRows`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, table: str, same: Mapping[str, Any]) -> Sequence[Mapping[Any, Any]]:
        """The whole rows."""
        return ask(self._connection, _finding(table, _told_apart(same)), _bound(same))

    def hold(self, table: str, same: Mapping[str, Any]) -> None:
        """Wait for whoever changes these rows; a SQLite file has one writer anyway."""
        if self._connection.dialect.name != "sqlite":
            self._connection.execute(_holding(table, _told_apart(same)), _bound(same))

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put down rows that are not there."""
        insert_rows(self._connection, Base.metadata.tables[table], rows)

    def update(self, table: str, same: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        """Let rows have these values."""
        told = {"to_" + name: value for name, value in values.items()}
        return change(self._connection, _updating(table, _told_apart(same), tuple(values)), told | _bound(same))

    def delete(self, table: str, same: Mapping[str, Any]) -> int:
        """Remove rows."""
        return change(self._connection, _deleting(table, _told_apart(same)), _bound(same))

    def metric_numbers(self, names: Collection[str]) -> Mapping[str, int]:
        """The numbers of metrics, given to new ones."""
        return made_keys(self._connection, list(names))


_Same = tuple[tuple[str, bool | None], ...]  # columns; of a flag also what it is, as an index may have one kind only


def _told_apart(same: Mapping[str, Any]) -> _Same:
    return tuple([(name, value if value is True or value is False else None) for name, value in same.items()])


def _bound(same: Mapping[str, Any]) -> dict[str, Any]:
    return {"of_" + name: value for name, value in same.items() if value is not True and value is not False}


# Statements are made once: to make one, and to find out that it is known, takes longer than to run it.
@cache
def _finding(table: str, same: _Same) -> Select[Any]:
    kept = Base.metadata.tables[table]
    return select(kept).where(*_equal(kept, same))


@cache
def _holding(table: str, same: _Same) -> Select[Any]:
    kept = Base.metadata.tables[table]
    return select(*kept.primary_key).where(*_equal(kept, same)).with_for_update(key_share=True)


@cache
def _updating(table: str, same: _Same, names: tuple[str, ...]) -> Update:
    kept = Base.metadata.tables[table]
    return kept.update().where(*_equal(kept, same)).values({name: bindparam(f"to_{name}") for name in names})


@cache
def _deleting(table: str, same: _Same) -> Delete:
    kept = Base.metadata.tables[table]
    return kept.delete().where(*_equal(kept, same))


def _equal(table: Table, same: _Same) -> list[ColumnElement[bool]]:
    return [table.c[name] == (bindparam(f"of_{name}") if flag is None else flag) for name, flag in same]


def _looked_up(connection: Connection, number: Any, words: Sequence[str]) -> dict[str, int]:
    column = _keys.c.name if number.table is _keys else _experiments.c.id
    rows = in_lists(connection, select(column, number), column, words)
    return {word: int(value) for word, value in rows}


def made_keys(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Give numbers to the names that have none."""
    there = _looked_up(connection, _keys.c.id, names)
    fresh = [{"name": name} for name in names if name not in there]
    if not fresh:
        return there
    insert_missing(connection, _keys, fresh)
    return _looked_up(connection, _keys.c.id, names)


def insert_missing(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows that are not there; where a database cannot say that, a clash runs the transaction again."""
    kind = connection.dialect.name
    statement: Any = insert(table)
    if kind == "sqlite":
        from sqlalchemy.dialects import sqlite

        statement = sqlite.insert(table).on_conflict_do_nothing()
    elif kind == "postgresql":
        from sqlalchemy.dialects import postgresql

        statement = postgresql.insert(table).on_conflict_do_nothing()
    elif kind in ("mysql", "mariadb"):
        statement = insert(table).prefix_with("IGNORE")
    connection.execute(statement, [dict(row) for row in rows])


def in_lists(connection: Connection, statement: Any, column: Any, values: Iterable[Any]) -> Iterator[Any]:
    """The rows whose column has one of the values, asked for in lists of a bearable length."""
    for some in batched(values, AT_ONCE):
        yield from connection.execute(statement.where(column.in_(some)))


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of at most ``size``.

    Example:
        >>> list(batched("abc", 2))
        [['a', 'b'], ['c']]
    """
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


def store_row(connection: Connection, table: Table, row: Mapping[str, Any], *keys: str) -> None:
    """Update the row that has these keys, or insert it; should two do so at once, one of them is run again."""
    same = [table.c[key] == row[key] for key in keys]
    if connection.execute(table.update().where(*same).values(dict(row))).rowcount == 0:
        connection.execute(insert(table).values(dict(row)))
