"""Driver rows: statements and rows as Python's own driver of SQLite takes and gives them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from model_checkpoint.database.values.checkpoint_scores import FLAGS
from model_checkpoint.database.values.column_rules import RULES, DataRule
from model_checkpoint.database.values.json_values import as_text, from_json

Row = dict[str, Any]
SQLITE_CLOCK = "(julianday('now') - 2440587.5) * 86400.0"

_DATA = {name for rules in RULES.values() for name, rule in rules.items() if isinstance(rule, DataRule)}
_TRUTHS = {*FLAGS, "pinned"}


def run_text(driver: sqlite3.Connection, text: str, values: Mapping[str, Any]) -> sqlite3.Cursor:
    """Run a statement that has ``:name`` where a value goes, or a list."""
    lists = {name: value for name, value in values.items() if value.__class__ is list}
    told = {name: as_text(one, name) if isinstance(one, str) else one for name, one in values.items()}
    for name, each in lists.items():
        places = {f"{name}_{n}": as_text(one, name) if isinstance(one, str) else one for n, one in enumerate(each)}
        text = re.sub(rf":{name}\b", f"({', '.join(':' + place for place in places)})", text)
        told |= places
        del told[name]
    return driver.execute(text, told)


def finding_text(table: str, same: Mapping[str, Any], columns: Sequence[str] = ()) -> str:
    """The question for rows that are told by what their columns equal.

    Example:
        >>> finding_text("checkpoints", {"id": ["c1", "c2"], "pinned": True}, ["step"])
        'SELECT checkpoints.step FROM checkpoints WHERE checkpoints.id IN :id AND checkpoints.pinned = 1'
    """
    wanted = ", ".join(f"{table}.{name}" for name in columns) or "*"
    return f"SELECT {wanted} FROM {table}{where_text(table, same)}"


def where_text(table: str, same: Mapping[str, Any]) -> str:
    """The condition; flags stand in it themselves, as an index may have one kind only."""
    equal = [f"{table}.{name} {_like(name, value)}" for name, value in same.items()]
    return f" WHERE {' AND '.join(equal)}" if equal else ""


def _like(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"= {value:d}"
    return f"{'IN' if isinstance(value, list) else '='} :{name}"


def fetched_rows(cursor: sqlite3.Cursor) -> list[Row]:
    """The rows of a statement by the names of their columns, as the data that these are of."""
    names = tuple([column[0] for column in cursor.description])
    rows = [dict(zip(names, row, strict=True)) for row in cursor]
    for name, read in _readings(names):
        for row in rows:
            row[name] = read(row[name])
    return rows


@lru_cache(maxsize=64)
def _readings(names: tuple[str, ...]) -> list[tuple[str, Callable[[Any], Any]]]:
    return [(name, as_data if name in _DATA else bool) for name in names if name in _DATA | _TRUTHS]


def as_data(text: str) -> Any:
    """Plain data that were kept as JSON."""
    return from_json(msgspec.json.decode(text))


def kept_row(table: str, row: Mapping[str, Any]) -> Row:
    """A row as it is kept, or a refusal."""
    rules = RULES.get(table, {})
    return {name: _kept(rules.get(name), value) for name, value in row.items()}


def _kept(rule: Any, value: Any) -> Any:
    if rule is None or value is None:
        return value
    kept = rule.kept(value)
    return msgspec.json.encode(kept).decode() if isinstance(rule, DataRule) else kept
