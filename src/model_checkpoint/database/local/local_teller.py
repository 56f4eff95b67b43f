"""Local teller: a SQLite file of the schema we know, told through Python's own driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from model_checkpoint.database.local.local_catalog import LocalCatalog
from model_checkpoint.database.table_rows import TableRows
from model_checkpoint.database.telling.told_checkpoints import ToldCheckpoints
from model_checkpoint.database.telling.told_history import ToldAudit, ToldIntegrity
from model_checkpoint.database.telling.told_points import ToldPoints
from model_checkpoint.database.telling.told_runs import ToldRuns
from model_checkpoint.database.values.file_urls import file_url

T = TypeVar("T")


class LocalTeller(ToldRuns, ToldPoints, ToldCheckpoints, ToldIntegrity, ToldAudit, LocalCatalog):
    """One file that is told something; a :class:`~.catalog_teller.CatalogTeller`."""

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

    def _tell(self, work: Callable[[TableRows], T], *, durable: bool = True) -> T:
        return self.together(lambda: work(self._rows), durable=durable)
