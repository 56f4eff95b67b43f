"""File version: of a SQLite file a value that moves once a commit of anybody can be seen.

The times of the files move earlier: a log is written and flushed first, and what it holds is seen only when its index
says so. Who reads in between finds the old rows, and would take them for those of the new time.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from model_checkpoint.database.local.local_file import opened_to_read


class FileVersion:
    """The version of one file, which may be replaced by another; one connection counts what all others commit."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._driver: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None

    def read(self) -> tuple[Any, ...] | None:
        """What is equal as long as there is nothing new to be read; None where that cannot be told."""
        try:
            stat = os.stat(self._path)
            if self._opened != (stat.st_dev, stat.st_ino):
                self.close()
                self._driver = opened_to_read(self._path)
                self._opened = (stat.st_dev, stat.st_ino)
            assert self._driver is not None
            return (*self._opened, self._driver.execute("PRAGMA data_version").fetchone()[0])
        except (OSError, sqlite3.Error):
            self.close()
            return None

    def close(self) -> None:
        """Let go of the file."""
        if self._driver is not None:
            self._driver.close()
        self._driver = self._opened = None
