"""SQLite files: one writer at a time that waits for its turn, readers beside it, and commits as durable as asked for.

The driver's own transactions begin as readers and fail at once when they turn into writers; ours say BEGIN IMMEDIATE.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from model_checkpoint.database.opening.database_url import is_file, is_memory
from model_checkpoint.database.opening.network_files import network_kind

T = TypeVar("T")

_log = logging.getLogger(__name__)
BUSY_SECONDS = 30.0
_MODE = "model_checkpoint_mode"  # what a connection's next transaction is for
READ, WRITE, RELAXED = "read", "write", "relaxed"  # relaxed: the last commits may go with the power, never with a crash
_FLUSHES = "model_checkpoint_flushes"  # what a connection of the pool was last told
_PRAGMAS = (
    "PRAGMA foreign_keys=ON",
    "PRAGMA cache_size=10000",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA journal_size_limit=67108864",
)


def sqlite_engine(url: URL) -> Engine:
    """An engine for a file, or for memory, which has one connection that all threads take turns with."""
    shared: dict[str, Any] = {"pool_size": 1, "max_overflow": 0} if is_memory(url) else {"max_overflow": 10}
    journal = _journal(url)
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_timeout=BUSY_SECONDS,
        pool_use_lifo=True,  # the one used last has the pages and the statements of the file at hand
        connect_args={"check_same_thread": False, "timeout": BUSY_SECONDS},
        hide_parameters=True,
        pool_reset_on_return=None,  # every transaction is ended by who began it
        **shared,
    )

    def prepare(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != journal:
            connection.execute(f"PRAGMA journal_mode={journal}")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", _begin)
    return engine


def driver_of(connection: Connection) -> Any:
    """The driver's own connection, for statements that are worked out already; None where that is not Python's own.

    What it raises is no error of SQLAlchemy; :mod:`.failures` reads both.
    """
    return connection.connection.driver_connection if connection.dialect.driver == "pysqlite" else None


def transact(connection: Connection, mode: str, work: Callable[[Connection], T]) -> T:
    """Run ``work`` in one transaction, begun and ended by the driver: the engine hears of it only if it is asked."""
    connection.info[_MODE] = mode
    driver = driver_of(connection)
    if driver is None:
        with connection.begin():
            return work(connection)
    _begin(connection)
    try:
        done = work(connection)
        (connection if connection.in_transaction() else driver).commit()
    except BaseException:  # an interrupt too must leave no transaction open
        _give_up(connection, driver)
        raise
    return done


def _give_up(connection: Connection, driver: Any) -> None:
    """Undo all; a connection that cannot even do that is not used again."""
    try:
        (connection if connection.in_transaction() else driver).rollback()
    except (SQLAlchemyError, sqlite3.Error):
        connection.invalidate()


def _begin(connection: Connection) -> None:
    driver = driver_of(connection)
    if driver is not None and driver.in_transaction:
        return  # ours, of which the engine hears only now
    say = connection.exec_driver_sql if driver is None else driver.execute
    mode = connection.info.get(_MODE, WRITE)
    if mode == READ:
        say("BEGIN")
        return
    flushes = "NORMAL" if mode == RELAXED else "FULL"
    if connection.info.get(_FLUSHES) != flushes:  # else it is as the last transaction of this connection left it
        say(f"PRAGMA synchronous={flushes}")
        connection.info[_FLUSHES] = flushes
    say("BEGIN IMMEDIATE")


def _journal(url: URL) -> str:
    """How the file keeps what is not committed; makes its folder, as a file there is to come."""
    if not is_file(url):
        return "memory" if is_memory(url) else "wal"
    path = Path(str(url.database))
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = network_kind(path.parent)
    if not kind:
        return "wal"
    if str(path) not in _told:
        _told.add(str(path))
        _log.warning(
            "%s lies on a network file system (%s): it is kept without a write-ahead log, so readers wait for writers. "
            "For many writers use a PostgreSQL or MySQL database.",
            path,
            kind,
        )
    return "truncate"


_told: set[str] = set()
