"""Local writer: a SQLite file of the schema we know, written through Python's own driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from model_checkpoint.database.local.local_catalog import LocalCatalog
from model_checkpoint.database.table_rows import TableRows
from model_checkpoint.database.values.file_urls import file_url
from model_checkpoint.database.writes.checkpoint_writes import CheckpointWrites
from model_checkpoint.database.writes.history_writes import AuditWrites, IntegrityWrites
from model_checkpoint.database.writes.point_writes import PointWrites
from model_checkpoint.database.writes.run_writes import RunWrites

T = TypeVar("T")


class LocalCatalogWriter(RunWrites, PointWrites, CheckpointWrites, IntegrityWrites, AuditWrites, LocalCatalog):
    """One file that can be written to; a :class:`~.catalog_writer.CatalogWriter`."""

    @property
    def database_url(self) -> str:
        """Which database this is."""
        return file_url(self._file.path)

    def together(self, work: Callable[[], T], *, durable: bool = True) -> T:
        """Run calls as one transaction: all or none."""
        try:
            return self._file.together(work, durable=durable)
        except BaseException:
            self._forget_numbers()
            raise

    def _write_rows(self, work: Callable[[TableRows], T], *, durable: bool = True) -> T:
        return self.together(lambda: work(self._rows), durable=durable)
