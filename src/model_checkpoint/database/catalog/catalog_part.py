"""Catalog part: what all parts of the catalog share.

Parts are mixed into one class, so that whoever has a connection has all of them; each asks the database only through
``_read`` and ``_write``, or, where a file can be read and written the same, through ``_read_rows`` and ``_write_rows``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from sqlalchemy import Connection

from model_checkpoint.database.catalog.sql_rows import SqlRows
from model_checkpoint.database.opening.transactions import Work
from model_checkpoint.database.table_rows import AT_ONCE, RowCatalog, TableRows, batched

T = TypeVar("T")


class CatalogPart(RowCatalog):
    """What the parts stand on; the connection brings the first two."""

    def _read(self, work: Work[T]) -> T:
        raise NotImplementedError

    def _write(self, work: Work[T], *, durable: bool = True) -> T:
        raise NotImplementedError

    def _read_rows(self, work: Callable[[TableRows], T]) -> T:
        return self._read(lambda connection: work(SqlRows(connection)))

    def _write_rows(self, work: Callable[[TableRows], T], *, durable: bool = True) -> T:
        return self._write(lambda connection: work(SqlRows(connection)), durable=durable)


def in_lists(connection: Connection, statement: Any, column: Any, values: Iterable[Any]) -> Iterator[Any]:
    """The rows whose column has one of the values, asked for in lists of a bearable length."""
    for some in batched(values, AT_ONCE):
        yield from connection.execute(statement.where(column.in_(some)))
