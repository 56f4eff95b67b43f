"""Read-only query: one query on a catalog that cannot change it, whatever it says.

SQLite opens the file read-only and an authorizer lets nothing but reading through. PostgreSQL declares a cursor, which
only a query can have, as one statement of a read-only transaction. MariaDB and MySQL run it as a table of another query
in a read-only transaction, which nothing but a query can be.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from model_checkpoint.cli.errors import QueryInvalidSQL, QueryRefused
from model_checkpoint.database.local.local_file import LocalFile, opened_to_read
from model_checkpoint.database.values.file_urls import SQLITE_FILE, file_of
from model_checkpoint.errors import OptionInvalid

SECONDS = 60  # a query that takes longer is ended
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_STEPS = 10_000  # of SQLite's machine between two looks at the clock
_QUERIES = ("select", "with", "values", "table")
_TOO_LONG = (
    "statement timeout",
    "max_statement_time",
    "maximum statement execution time",
)  # PostgreSQL, MariaDB, MySQL


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Rows of a query; ``more`` says that there were others beyond the limit."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One query, where it is asked, and what it may take."""

    where: str
    sql: str
    limit: int
    seconds: float

    def took_too_long(self) -> QueryRefused:
        return QueryRefused(f"{self.where}: the query took longer than {self.seconds:g} s and was ended.")


def run_query(url: str, sql: str, *, limit: int, seconds: float = SECONDS) -> QueryResult:
    """Run one query on the database of ``url``, for at most ``seconds``, and take at most ``limit`` rows of it.

    Raises:
        QueryRefused: It is no query, reaches for what it may not, or takes too long.
        QueryInvalidSQL: The database does not understand it.
    """
    if limit < 1:
        raise OptionInvalid(f"--limit must be at least 1, got {limit}.")
    text = sql.strip().rstrip(";").strip()
    if not text:
        raise QueryInvalidSQL("the query is empty. Write one, e.g. select name, status from experiments.")
    if url.startswith(SQLITE_FILE):
        return _on_sqlite(_Asked(where=file_of(url), sql=text, limit=limit, seconds=seconds))
    return _on_server(url, _Asked(where="", sql=text, limit=limit, seconds=seconds))


def _on_sqlite(asked: _Asked) -> QueryResult:
    deadline = time.monotonic() + asked.seconds
    with closing(opened_to_read(asked.where)) as connection, _told(asked, deadline):
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.set_authorizer(_only_reading)
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        cursor = connection.execute(asked.sql)
        rows = cursor.fetchmany(asked.limit + 1)
        return _result([column[0] for column in cursor.description or ()], rows, asked.limit)


def _only_reading(action: int, first: str | None, second: str | None, *_: Any) -> int:
    loads = action == sqlite3.SQLITE_FUNCTION and second == "load_extension"
    return sqlite3.SQLITE_OK if action in _READING and not loads else sqlite3.SQLITE_DENY


@contextmanager
def _told(asked: _Asked, deadline: float) -> Iterator[None]:
    """What SQLite says, in our words."""
    path = asked.where
    try:
        yield
    except (sqlite3.Warning, sqlite3.DatabaseError) as error:
        said = str(error)
        if "one statement" in said:
            raise QueryRefused(f"{path}: one query at a time. Nothing was done.") from error
        if any(word in said for word in ("not authorized", "authorization denied", "prohibited", "readonly")):
            raise QueryRefused(
                f"{path}: the query would do more than read ({said}). The catalog is only read here; nothing was done."
            ) from error
        if said == "interrupted":
            if time.monotonic() <= deadline:
                raise KeyboardInterrupt from None
            raise asked.took_too_long() from error
        raise QueryInvalidSQL(f"{path}: {said}. `mckpt sql CATALOG --tables` lists tables and columns.") from error


def _on_server(url: str, asked: _Asked) -> QueryResult:
    from model_checkpoint.database.opening.database_url import read_url
    from model_checkpoint.database.opening.pool import DatabasePool

    if asked.sql.split(None, 1)[0].lower().lstrip("(") not in _QUERIES:
        raise QueryRefused(f"only a query is run here, one that begins with {', '.join(_QUERIES)}. Nothing was done.")
    pool = DatabasePool(read_url(url))
    kind = pool.url.get_backend_name()
    runs = {"postgresql": _on_postgresql, "mysql": _on_mysql, "mariadb": _on_mysql}
    if kind not in runs:
        raise OptionInvalid(f"{pool.where}: queries are run on SQLite, PostgreSQL, MySQL and MariaDB, not on {kind}.")
    try:
        with _connected(pool) as driver:
            return runs[kind](driver, replace(asked, where=pool.where))
    finally:
        pool.close()


@contextmanager
def _connected(pool: Any) -> Iterator[Any]:
    from sqlalchemy.exc import SQLAlchemyError

    from model_checkpoint.database.opening.failures import meaning_of, typed

    try:
        raw = pool.engine().raw_connection()
    except SQLAlchemyError as error:
        raise typed(error, meaning_of(error), pool.where, pool.url) from error
    try:
        yield raw.driver_connection
    finally:
        raw.invalidate()  # whatever the query has set goes with its connection


def _on_postgresql(driver: Any, asked: _Asked) -> QueryResult:
    from psycopg import Error

    with driver.cursor() as cursor, _answered(Error, asked):
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute(f"SET LOCAL statement_timeout = '{asked.seconds * 1000:.0f}ms'")
        # prepared: the server takes one statement, so that nothing can follow a semicolon
        cursor.execute(f"DECLARE mckpt_query NO SCROLL CURSOR FOR {asked.sql}", prepare=True)
        cursor.execute(f"FETCH {asked.limit + 1} FROM mckpt_query")
        columns, rows = [column.name for column in cursor.description], cursor.fetchall()
        driver.rollback()
    return _result(columns, rows, asked.limit)


def _on_mysql(driver: Any, asked: _Asked) -> QueryResult:
    from pymysql import MySQLError  # type: ignore[import-untyped]

    is_mariadb = "mariadb" in driver.get_server_info().lower()
    seconds = (
        f"max_statement_time = {asked.seconds}" if is_mariadb else f"max_execution_time = {asked.seconds * 1000:.0f}"
    )
    with driver.cursor() as cursor, _answered(MySQLError, asked):
        cursor.execute(f"SET SESSION {seconds}")
        cursor.execute("START TRANSACTION READ ONLY")
        cursor.execute(f"SELECT * FROM (\n{asked.sql}\n) AS mckpt_query LIMIT {asked.limit + 1}")
        columns, rows = [column[0] for column in cursor.description], cursor.fetchall()
        driver.rollback()
    return _result(columns, rows, asked.limit)


@contextmanager
def _answered(failure: type[Exception], asked: _Asked) -> Iterator[None]:
    try:
        yield
    except failure as error:
        said = str(error.args[-1] if error.args else error).strip().splitlines()[0]
        if any(words in said for words in _TOO_LONG):
            raise asked.took_too_long() from error
        if "read-only" in said or "READ ONLY" in said:
            raise QueryRefused(
                f"{asked.where}: the query would do more than read ({said}). Nothing was done."
            ) from error
        raise QueryInvalidSQL(
            f"{asked.where}: {said}. `mckpt sql CATALOG --tables` lists tables and columns."
        ) from error


def _result(columns: Sequence[str], rows: Sequence[Sequence[Any]], limit: int) -> QueryResult:
    shown = [tuple(_as_text(value) for value in row) for row in rows[:limit]]
    return QueryResult(columns=columns, rows=shown, more=len(rows) > limit)


def _as_text(value: Any) -> Any:
    """What MariaDB keeps as bytes to compare it exactly is text to people."""
    if isinstance(value, (bytes, memoryview)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return bytes(value)
    return value


def tables_of(url: str) -> list[tuple[str, list[str]]]:
    """Every table of a database, and its columns."""
    if url.startswith(SQLITE_FILE):
        return _tables_of_file(file_of(url))
    from sqlalchemy import inspect

    from model_checkpoint.database.opening.database_url import read_url
    from model_checkpoint.database.opening.pool import DatabasePool

    pool = DatabasePool(read_url(url))
    try:
        seen = inspect(pool.engine())
        return [
            (name, [column["name"] for column in seen.get_columns(name)]) for name in sorted(seen.get_table_names())
        ]
    finally:
        pool.close()


def _tables_of_file(path: str) -> list[tuple[str, list[str]]]:
    every = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY name"
    with closing(LocalFile(path)) as file:
        names = [row["name"] for row in file.rows(every)]
        return [
            (name, [row["name"] for row in file.rows("SELECT name FROM pragma_table_info(?)", (name,))])
            for name in names
        ]
