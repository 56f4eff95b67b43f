"""Table rows: all that a rule needs of a database, whatever the way there; knows no SQL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class TableRows(Protocol):
    """The rows of a database in the middle of a transaction; ``same`` tells which, by columns and what they equal."""

    def find(self, table: str, same: Mapping[str, Any]) -> Sequence[Mapping[Any, Any]]:
        """The whole rows."""

    def hold(self, table: str, same: Mapping[str, Any]) -> None:
        """Let nobody else change these rows before the transaction ends."""

    def insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put down rows that are not there."""

    def update(self, table: str, same: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        """Let rows have these values; says how many there were."""

    def delete(self, table: str, same: Mapping[str, Any]) -> int:
        """Remove rows; says how many there were."""

    def metric_numbers(self, names: Collection[str]) -> Mapping[str, int]:
        """The numbers of metrics, given to new ones."""


class ToldCatalog:
    """What the rules stand on; a file and a connection each bring their own."""

    def _tell(self, work: Callable[[TableRows], T], *, durable: bool = True) -> T:
        """Run ``work`` in one transaction, or as part of the one that is under way."""
        raise NotImplementedError
