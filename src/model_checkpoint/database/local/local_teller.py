"""Local teller: what a SQLite file of the schema we know is told, through Python's own driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from model_checkpoint.database.local.local_catalog import LocalCatalog
from model_checkpoint.database.local.local_rows import LocalRows, as_data
from model_checkpoint.database.records import COMMITTED, Checkpoint, Page
from model_checkpoint.database.telling.table_rows import TableRows
from model_checkpoint.database.telling.told_checkpoints import ToldCheckpoints
from model_checkpoint.database.telling.told_history import ToldAudit, ToldIntegrity
from model_checkpoint.database.values.cursors import cursor_of, read_cursor
from model_checkpoint.database.values.exact_numbers import NOT_A_NUMBER
from model_checkpoint.database.values.row_records import checkpoint_of

T = TypeVar("T")

_SCORES = {"min": "grade, value", "max": "grade DESC, value DESC"}
_NEWEST = "step DESC, created_at DESC"
_BEST = f"""
    SELECT checkpoint_id FROM checkpoint_metrics JOIN metric_keys ON metric_keys.id = checkpoint_metrics.key
    WHERE experiment_id = ? AND name = ? AND grade < ? ORDER BY {{}}, {_NEWEST}, checkpoint_id DESC LIMIT ?"""


class LocalTeller(ToldCheckpoints, ToldIntegrity, ToldAudit, LocalCatalog):
    """One file that is told something; a :class:`~.catalog_teller.CatalogTeller`."""

    def together(self, work: Callable[[], T], *, durable: bool = True) -> T:
        """Run calls as one transaction: all or none; it is always durable."""
        return self._file.together(work)

    def _tell(self, work: Callable[[TableRows], T], *, durable: bool = True) -> T:
        return self._file.together(lambda: work(LocalRows(self._file)))

    def get_checkpoint(self, checkpoint_id: str) -> Checkpoint | None:
        """One checkpoint, deleted or not."""
        return next(iter(self.get_checkpoints([checkpoint_id])), None)

    def page(self, experiment_id: str, *, limit: int = 100, after: str = "") -> Page[Checkpoint]:
        """Checkpoints of a run, newest first, a page at a time."""
        place = read_cursor(after, 3) if after else []
        beyond = "AND (step, created_at, id) < (?, ?, ?)" if after else ""
        text = f"SELECT * FROM checkpoints WHERE experiment_id = ? AND state = ? {beyond} ORDER BY {_NEWEST}, id DESC"
        rows = self._file.rows(f"{text} LIMIT ?", (experiment_id, COMMITTED, *place, limit + 1))
        found = [checkpoint_of(as_data(row)) for row in rows[:limit]]
        last = [rows[limit - 1][name] for name in ("step", "created_at", "id")] if len(rows) > limit else []
        return Page(found, cursor_of(last) if last else "")

    def best(self, experiment_id: str, metric: str, direction: str = "min", k: int = 1) -> list[Checkpoint]:
        """The ``k`` best checkpoints of a run by a metric, best first; among equals the newest, NaN not at all."""
        rows = self._file.rows(_BEST.format(_SCORES[direction]), (experiment_id, metric, NOT_A_NUMBER, k))
        return [one for one in self.get_checkpoints([row["checkpoint_id"] for row in rows]) if one.state == COMMITTED]
