"""Local file: a SQLite file, opened to be read or written; what its driver raises is told as a connection tells it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from model_checkpoint.database.opening.network_files import network_kind
from model_checkpoint.database.schema.revisions import HEAD, VERSION_TABLE
from model_checkpoint.database.values.file_urls import SQLITE_FILE, file_of, file_url
from model_checkpoint.errors import CheckpointException

BUSY_SECONDS = 30.0

T = TypeVar("T")


def is_as_we_know_it(database_url: str) -> bool:
    """Whether a URL names a file of this machine that has the schema of this version.

    Example:
        >>> is_as_we_know_it("sqlite:////no/such/file.db"), is_as_we_know_it("postgresql://host/runs")
        (False, False)
    """
    path = file_of(database_url)
    if not database_url.startswith(SQLITE_FILE) or "?" in database_url:
        return False
    if not os.path.isfile(path) or network_kind(Path(path).parent):
        return False
    try:
        with closing(opened_to_read(path)) as driver:
            found = driver.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    except sqlite3.Error:
        return False
    return found is not None and found[0] == HEAD


def opened_to_read(path: str) -> sqlite3.Connection:
    """The driver's own connection to a file that is there; nothing can be written through it.

    Raises:
        sqlite3.Error: There is no such file, or it is no database.
    """
    return _opened(path, "ro")


def _opened(path: str, mode: str) -> sqlite3.Connection:
    """The driver begins nothing by itself; threads that share it take turns."""
    name = f"file:{quote(path)}?mode={mode}"
    return sqlite3.connect(name, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


class LocalFile:
    """One file, for as long as a command takes; opened to be read, or to be written, too."""

    def __init__(self, path: str, *, writable: bool = False) -> None:
        self.path = path
        try:
            self._driver = _opened(path, "rw" if writable else "ro")
        except sqlite3.Error as error:
            raise self._told(error) from error

    def close(self) -> None:
        """Let go of the file."""
        self._driver.close()

    def rows(self, text: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows of one statement, by the names of their columns."""
        with self.driving() as driver:
            cursor = driver.execute(text, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    @contextmanager
    def driving(self) -> Iterator[sqlite3.Connection]:
        """The driver's own connection; what it raises is told."""
        try:
            yield self._driver
        except sqlite3.Error as error:
            raise self._told(error) from error

    def together(self, work: Callable[[], T], *, durable: bool = True) -> T:
        """Run changes as one transaction; if ``durable``, the power cannot take it once it is through."""
        if self._driver.in_transaction:
            return work()
        try:
            self._driver.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._driver.execute("PRAGMA foreign_keys=ON")
            self._driver.execute("BEGIN IMMEDIATE")
            done = work()
            self._driver.commit()
            return done
        except sqlite3.Error as error:
            raise self._told(error) from error
        finally:
            self._driver.rollback()  # of what is not through; else there is nothing to undo

    def _told(self, error: sqlite3.Error) -> CheckpointException:
        from model_checkpoint.database.opening.database_url import read_url, shown
        from model_checkpoint.database.opening.failures import meaning_of, told_alike, typed

        url, alike = read_url(file_url(self.path)), told_alike(error)
        return typed(alike, meaning_of(alike), shown(url), url)
