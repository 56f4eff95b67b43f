"""Local rows: rows of tables in a SQLite file of the schema we know; a ``TableRows`` without an engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model_checkpoint.database.local.local_file import LocalFile
from model_checkpoint.database.table_rows import in_parts
from model_checkpoint.database.values.driver_rows import (
    SQLITE_CLOCK,
    Row,
    fetched_rows,
    finding_text,
    kept_row,
    run_text,
    where_text,
)


class LocalRows:
    """The rows of one file; a :class:`~.table_rows.TableRows`."""

    clock = SQLITE_CLOCK

    def __init__(self, file: LocalFile) -> None:
        self._file = file

    def query(self, text: str, values: Mapping[str, Any]) -> list[Row]:
        """The rows of a question."""
        with self._file.driving() as driver:
            return [row for part in in_parts(values) for row in fetched_rows(run_text(driver, text, part))]

    def scan(self, text: str, values: Mapping[str, Any]) -> sqlite3.Cursor:
        """The driver's own cursor of a question."""
        with self._file.driving() as driver:
            return run_text(driver, text, values)

    def execute(self, text: str, values: Mapping[str, Any]) -> int:
        """Carry out a change."""
        with self._file.driving() as driver:
            return sum(run_text(driver, text, part).rowcount for part in in_parts(values))

    def find(
        self, table: str, same: Mapping[str, Any], *, columns: Sequence[str] = (), lock: bool = False
    ) -> list[Row]:
        """The whole rows, or some columns; a SQLite file has one writer anyway."""
        return self.query(finding_text(table, same, columns), same)

    def lock(self, table: str, same: Mapping[str, Any]) -> None:
        """Nothing, for the same reason."""

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put down rows that are not there."""
        self._put(f"INSERT INTO {table}", table, rows)

    def insert_missing(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put down those of the rows that are not there."""
        self._put(f"INSERT OR IGNORE INTO {table}", table, rows)

    def _put(self, words: str, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            places = ", ".join(f":{name}" for name in rows[0])
            text = f"{words} ({', '.join(rows[0])}) VALUES ({places})"
            self._run_each(text, (kept_row(table, row) for row in rows))

    def append(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Put down many rows of numbers that are sound."""
        self._run_each(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", rows)

    def update(self, table: str, same: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        """Let rows have these values."""
        told = ", ".join(f"{name} = :to_{name}" for name in values)
        kept = {f"to_{name}": value for name, value in kept_row(table, values).items()}
        return self.execute(f"UPDATE {table} SET {told}{where_text(table, same)}", {**same, **kept})

    def update_each(self, table: str, keys: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Let each row that has the keys of one of these have the rest of it."""
        if rows:
            told = ", ".join(f"{name} = :{name}" for name in rows[0] if name not in keys)
            text = f"UPDATE {table} SET {told}{where_text(table, dict.fromkeys(keys))}"
            self._run_each(text, (kept_row(table, row) for row in rows))

    def delete(self, table: str, same: Mapping[str, Any]) -> int:
        """Remove rows."""
        return self.execute(f"DELETE FROM {table}{where_text(table, same)}", same)

    def _run_each(self, text: str, rows: Iterable[Any]) -> None:
        with self._file.driving() as driver:
            driver.executemany(text, rows)
