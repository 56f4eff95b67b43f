"""Local catalog: a SQLite file of the schema we know, read through Python's own driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from model_checkpoint.database.local.local_file import LocalFile
from model_checkpoint.database.local.local_rows import LocalRows
from model_checkpoint.database.queries.checkpoint_queries import CheckpointQueries
from model_checkpoint.database.queries.history_queries import HistoryQueries
from model_checkpoint.database.queries.point_queries import PointQueries
from model_checkpoint.database.queries.run_queries import RunQueries
from model_checkpoint.database.table_rows import TableRows

T = TypeVar("T")


class LocalCatalog(RunQueries, PointQueries, CheckpointQueries, HistoryQueries):
    """The answers of one file; a :class:`~.catalog_reader.CatalogReader`."""

    def __init__(self, file: LocalFile) -> None:
        self._file, self._rows = file, LocalRows(file)
        self._experiment_numbers: dict[str, int] = {}
        self._key_ids: dict[str, int] = {}

    def _read_rows(self, work: Callable[[TableRows], T]) -> T:
        return work(self._rows)
