"""Pool: the connections of one process to one database, begun anew after a fork."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from model_checkpoint import forks
from model_checkpoint.database.errors import DatabaseClosed, DatabaseUnreachable
from model_checkpoint.database.opening.database_url import is_file, is_memory, is_sqlite, shown
from model_checkpoint.database.opening.sql_servers import server_engine
from model_checkpoint.database.opening.sqlite_files import sqlite_engine
from model_checkpoint.errors import OptionInvalid

_EXTRAS = {"psycopg": "postgres", "pymysql": "mysql"}


def _dispose(engine: Engine, idle: list[Connection], pid: int) -> None:
    """Close what nobody closed, when the pool is collected or the process ends; never what is the parent's."""
    if os.getpid() == pid:
        _close_idle(idle)
        engine.dispose()


def _close_idle(idle: list[Connection]) -> None:
    while idle:
        idle.pop().close()


class DatabasePool:
    """Makes its engine on first use, in every process."""

    def __init__(self, url: URL, *, patient: bool = False) -> None:
        self.url, self.where, self._patient = url, shown(url), patient
        self._lock = forks.lock()
        self._engine: Engine | None = None
        self._idle: list[Connection] = []
        self._keeps_one = is_file(url)
        self._closed = False
        self._pid = os.getpid()
        self._lost = False
        forks.in_child(self._begin_anew)

    def engine(self) -> Engine:
        """The engine of this process."""
        with self._lock:
            if self._closed:
                raise DatabaseClosed(f"{self.where}: the connection was closed. Open another one.")
            if self._lost:
                raise DatabaseUnreachable(
                    f"{self.where}: a database in memory belongs to process {self._pid}, not to its children. "
                    "Use a file for what several processes share."
                )
            if self._engine is None:
                self._engine, self._pid = self._make(), os.getpid()
                weakref.finalize(self, _dispose, self._engine, self._idle, self._pid)
            return self._engine

    @contextmanager
    def lent(self) -> Iterator[Connection]:
        """A connection for one piece of work; to a file one stays at hand, since to get it takes as long as a row.

        It is at hand for whoever comes next; who finds none gets another from the engine.
        """
        engine = self.engine()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = engine.connect()
        try:
            yield connection
        except BaseException:  # an interrupt too: nobody knows in what state it is, so it is not kept
            connection.close()
            raise
        with self._lock:
            keeps = self._keeps_one and not self._idle and not self._closed
            if keeps:
                self._idle.append(connection)
        if not keeps:
            connection.close()

    def _make(self) -> Engine:
        try:
            return sqlite_engine(self.url) if is_sqlite(self.url) else server_engine(self.url, patient=self._patient)
        except NoSuchModuleError as error:
            raise OptionInvalid(f"{self.where}: SQLAlchemy has no dialect for it ({error}). Install one.") from error
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get(error.name or "")
            hint = f"pip install 'model-checkpoint[{extra}]'" if extra else f"pip install {error.name}"
            raise OptionInvalid(f"{self.where}: its driver {error.name} is not installed. {hint}") from error
        except (ArgumentError, TypeError, ValueError) as error:
            raise OptionInvalid(f"{self.where}: the URL cannot be used ({error}).") from error
        except OSError as error:
            raise DatabaseUnreachable(f"{self.where}: cannot be opened ({error.strerror}).") from error

    def close(self) -> None:
        """Give all connections back; the pool cannot be used any more."""
        with self._lock:
            if self._engine is not None:
                _close_idle(self._idle)
                self._engine.dispose()
            self._engine, self._closed = None, True

    def _begin_anew(self) -> None:
        """Leave the parent's connections alone: closing one here would end or damage the parent's."""
        if self._engine is None:
            return
        for theirs in (self._engine.pool, self._idle):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(theirs))  # never collected, hence never closed
        self._engine, self._idle = None, []
        self._lost = is_memory(self.url)
