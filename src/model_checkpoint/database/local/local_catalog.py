"""Local catalog: a SQLite file of the schema we know, asked through Python's own driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from model_checkpoint.database.asking.asked_checkpoints import AskedCheckpoints
from model_checkpoint.database.asking.asked_history import AskedHistory
from model_checkpoint.database.asking.asked_points import AskedPoints
from model_checkpoint.database.asking.asked_runs import AskedRuns
from model_checkpoint.database.local.local_file import LocalFile
from model_checkpoint.database.local.local_rows import LocalRows
from model_checkpoint.database.table_rows import TableRows

T = TypeVar("T")


class LocalCatalog(AskedRuns, AskedPoints, AskedCheckpoints, AskedHistory):
    """The answers of one file; a :class:`~.catalog_reader.CatalogReader`."""

    def __init__(self, file: LocalFile) -> None:
        self._file, self._rows = file, LocalRows(file)
        self._experiment_numbers: dict[str, int] = {}
        self._key_ids: dict[str, int] = {}

    def _look(self, work: Callable[[TableRows], T]) -> T:
        return work(self._rows)
