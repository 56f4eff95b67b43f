"""Table rows: all that a question or a rule needs of a database, whatever the way there.

The rooms of queries and of writes stand on this alone, so each query and each rule is written once: for a file, which
Python's own driver serves, and for a whole connection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from model_checkpoint.database.errors import RowRefused
from model_checkpoint.errors import WrongReference

T = TypeVar("T")
AT_ONCE = 500  # values in one list of a statement


class TableRows(Protocol):
    """The rows of a database in the middle of a transaction.

    ``same`` tells which rows, by columns and what they equal; of a list, one of its values. A text is SQL that every
    database reads: ``:name`` stands where a value goes, or a list behind IN; a column called ``key`` has its table in
    front.
    """

    @property
    def clock(self) -> str:
        """What the time is called, in the words of this database."""

    def query(self, text: str, values: Mapping[str, Any]) -> Sequence[Mapping[Any, Any]]:
        """The rows of a question, as the data that their columns are of."""

    def scan(self, text: str, values: Mapping[str, Any]) -> Any:
        """The driver's own cursor of a question without lists, for many rows of plain numbers."""

    def execute(self, text: str, values: Mapping[str, Any]) -> int:
        """Carry out a change; says how many rows it met."""

    def find(
        self, table: str, same: Mapping[str, Any], *, columns: Sequence[str] = (), lock: bool = False
    ) -> Sequence[Mapping[Any, Any]]:
        """The whole rows, or some columns; if ``lock``, nobody else changes them before the transaction ends."""

    def lock(self, table: str, same: Mapping[str, Any]) -> None:
        """Let nobody else change these rows before the transaction ends."""

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put down rows that are not there, all of the same columns."""

    def insert_missing(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put down those of the rows that are not there."""

    def append(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Put down many rows of numbers that are sound, as fast as this database can."""

    def update(self, table: str, same: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        """Let rows have these values; says how many there were."""

    def update_each(self, table: str, keys: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Let each row that has the keys of one of these have the rest of it."""

    def delete(self, table: str, same: Mapping[str, Any]) -> int:
        """Remove rows; says how many there were."""


class RowCatalog:
    """What questions and rules stand on; a file and a connection each bring their own of the first two."""

    _experiment_numbers: dict[str, int]
    _key_ids: dict[str, int]

    def _read_rows(self, work: Callable[[TableRows], T]) -> T:
        """Run ``work``, which changes nothing, on one state of the database."""
        raise NotImplementedError

    def _write_rows(self, work: Callable[[TableRows], T], *, durable: bool = True) -> T:
        """Run ``work`` in one transaction, or as part of the one that is under way."""
        raise NotImplementedError

    def _numbers_of(self, experiment_ids: Collection[str]) -> Mapping[str, int]:
        """The numbers of runs, remembered since they never change."""
        missing = sorted(set(experiment_ids) - self._experiment_numbers.keys())
        if missing:
            asked = "SELECT id, number FROM experiments WHERE id IN :id"
            found = {
                row["id"]: row["number"] for row in self._read_rows(lambda rows: rows.query(asked, {"id": missing}))
            }
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
            found = self._read_rows(lambda rows: _numbered(rows, missing))
            if len(found) < len(missing):
                found = self._write_rows(lambda rows: metric_numbers(rows, missing))
            self._key_ids.update(found)
        return self._key_ids

    def _key_of(self, name: str) -> int | None:
        """The number of one metric; None where nobody wrote such a one."""
        if name not in self._key_ids:
            self._key_ids.update(self._read_rows(lambda rows: _numbered(rows, [name])))
        return self._key_ids.get(name)

    def _forget_numbers(self) -> None:
        """Those given in a transaction that is undone, or in a database that was replaced, are nobody's."""
        self._experiment_numbers.clear()
        self._key_ids.clear()


def metric_numbers(rows: TableRows, names: Sequence[str]) -> dict[str, int]:
    """The numbers of metrics, given to new ones."""
    there = _numbered(rows, names)
    fresh = [{"name": name} for name in names if name not in there]
    if not fresh:
        return there
    rows.insert_missing("metric_keys", fresh)
    return _numbered(rows, names)


def _numbered(rows: TableRows, names: Sequence[str]) -> dict[str, int]:
    return {row["name"]: row["id"] for row in rows.find("metric_keys", {"name": list(names)})}


def store_row(rows: TableRows, table: str, row: Mapping[str, Any], *keys: str) -> None:
    """Update the row that has these keys, or insert it; should two do so at once, one of them is run again."""
    if not rows.update(table, {key: row[key] for key in keys}, row):
        rows.insert(table, [row])


def add_once(rows: TableRows, table: str, row: Mapping[str, Any]) -> None:
    """Insert a row, unless one of its id is there."""
    if not rows.find(table, {"id": row["id"]}):
        rows.insert(table, [row])


def in_parts(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The same in parts whose list is as long as a statement bears, each value once; an empty list has none.

    Example:
        >>> list(in_parts({"kind": "x", "id": ["a", "b", "a"]})), list(in_parts({"id": []}))
        ([{'kind': 'x', 'id': ['a', 'b']}], [])
    """
    lists = [name for name, value in values.items() if value.__class__ is list]
    if not lists:
        yield values
        return
    (name,) = lists
    for some in batched(dict.fromkeys(values[name]), AT_ONCE):
        yield {**values, name: some}


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of at most ``size``.

    Example:
        >>> list(batched("abc", 2))
        [['a', 'b'], ['c']]
    """
    left = iter(items)
    while some := list(islice(left, size)):
        yield some
