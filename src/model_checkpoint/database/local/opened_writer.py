"""Opened writer: who writes for a URL: the file itself, or a whole connection, by the same rule as for reading."""

from __future__ import annotations

from contextlib import AbstractContextManager

from model_checkpoint.database.local.catalog_writer import CatalogWriter
from model_checkpoint.database.local.local_writer import LocalCatalogWriter
from model_checkpoint.database.local.opened_reader import opened


def open_writer(database_url: str, *, auto_migrate: bool = False) -> AbstractContextManager[CatalogWriter]:
    """A catalog to write down what was done to a root; an older schema is told, not changed, unless ``auto_migrate``.

    Example:
        >>> import tempfile
        >>> from model_checkpoint.database import Checkpoint, Experiment, open_catalog
        >>> url = f"sqlite:///{tempfile.mkdtemp()}/catalog.db"
        >>> with open_catalog(url) as db:
        ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
        ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
        >>> with open_writer(url) as writer:
        ...     type(writer).__name__, writer.mark_deleted("c1"), writer.get_checkpoint("c1").state
        ('LocalCatalogWriter', True, 'deleted')
    """
    return opened(database_url, LocalCatalogWriter, writable=True, auto_migrate=auto_migrate)
