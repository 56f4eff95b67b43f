"""Opened teller: who is told for a URL: the file itself, or a whole connection, by the same rule as for questions."""

from __future__ import annotations

from contextlib import AbstractContextManager

from model_checkpoint.database.local.catalog_teller import CatalogTeller
from model_checkpoint.database.local.local_teller import LocalTeller
from model_checkpoint.database.local.opened_reader import opened


def open_teller(database_url: str, *, auto_migrate: bool = False) -> AbstractContextManager[CatalogTeller]:
    """A catalog to tell of what was done to a root; an older schema is told, not changed, unless ``auto_migrate``.

    Example:
        >>> import tempfile
        >>> from model_checkpoint.database import Checkpoint, Experiment, open_catalog
        >>> url = f"sqlite:///{tempfile.mkdtemp()}/catalog.db"
        >>> with open_catalog(url) as db:
        ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
        ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
        >>> with open_teller(url) as teller:
        ...     type(teller).__name__, teller.mark_deleted("c1"), teller.get_checkpoint("c1").state
        ('LocalTeller', True, 'deleted')
    """
    return opened(database_url, LocalTeller, writable=True, auto_migrate=auto_migrate)
