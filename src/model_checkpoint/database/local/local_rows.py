"""Local rows: rows of tables in a SQLite file of the schema we know, as data; a ``TableRows`` without an engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from model_checkpoint.database.local.local_file import LocalFile, Row
from model_checkpoint.database.values.checkpoint_scores import FLAGS
from model_checkpoint.database.values.json_values import as_text, from_json, to_json

_TRUTHS = (*FLAGS, "pinned")
_DATA = ("metrics", "metadata", "parts", "tags", "config", "details")


class LocalRows:
    """The rows of one file; a :class:`~.telling.table_rows.TableRows`."""

    def __init__(self, file: LocalFile) -> None:
        self._file = file

    def find(self, table: str, same: Mapping[str, Any]) -> list[Row]:
        """The whole rows."""
        where, values = _equal(same)
        return [as_data(row) for row in self._file.rows(f"SELECT * FROM {table} WHERE {where}", values)]

    def hold(self, table: str, same: Mapping[str, Any]) -> None:
        """Nothing: a SQLite file has one writer anyway."""

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put down rows that are not there."""
        for row in rows:
            places = ", ".join("?" * len(row))
            self._file.change(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", _kept(row))

    def update(self, table: str, same: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        """Let rows have these values."""
        where, which = _equal(same)
        told = ", ".join(f"{name} = ?" for name in values)
        return self._file.change(f"UPDATE {table} SET {told} WHERE {where}", (*_kept(values), *which))

    def delete(self, table: str, same: Mapping[str, Any]) -> int:
        """Remove rows."""
        where, values = _equal(same)
        return self._file.change(f"DELETE FROM {table} WHERE {where}", values)

    def metric_numbers(self, names: Collection[str]) -> dict[str, int]:
        """The numbers of metrics, given to new ones."""
        for name in names:
            self._file.change("INSERT INTO metric_keys (name) VALUES (?) ON CONFLICT DO NOTHING", (name,))
        rows = self._file.rows_in_lists("SELECT id, name FROM metric_keys WHERE name IN ({})", names)
        return {row["name"]: row["id"] for row in rows}


def _equal(same: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """The condition, and what goes where in it; flags stand in it themselves, as an index may have one kind only."""
    flags = [f"{name} = {value:d}" for name, value in same.items() if isinstance(value, bool)]
    rest = {name: value for name, value in same.items() if not isinstance(value, bool)}
    return " AND ".join([*flags, *(f"{name} = ?" for name in rest)]), (*rest.values(),)


def _kept(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(_as_kept(value, name) for name, value in row.items())


def _as_kept(value: Any, name: str) -> Any:
    if name in _DATA:
        return msgspec.json.encode(to_json(value, name)).decode()
    return as_text(value, name) if isinstance(value, str) else value


def as_data(row: Row) -> Row:
    """A row as the data that its columns are of."""
    data = {name: from_json(msgspec.json.decode(row[name])) for name in _DATA if name in row}
    return {**row, **data, **{name: bool(row[name]) for name in _TRUTHS if name in row}}
