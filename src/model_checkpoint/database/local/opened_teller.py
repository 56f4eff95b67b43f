"""Opened teller: who is told for a URL: the file itself, or a whole connection, by the same rule as for questions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from model_checkpoint.database.local.catalog_teller import CatalogTeller
from model_checkpoint.database.local.local_file import LocalFile, is_as_we_know_it
from model_checkpoint.database.local.local_teller import LocalTeller
from model_checkpoint.database.values.file_urls import file_of


@contextmanager
def open_teller(database_url: str, *, auto_migrate: bool = False) -> Iterator[CatalogTeller]:
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
    if is_as_we_know_it(database_url):
        with closing(LocalFile(file_of(database_url), writable=True)) as file:
            yield LocalTeller(file)
        return
    from model_checkpoint.database.connection_classes import open_catalog

    with open_catalog(database_url, auto_migrate=auto_migrate) as connection:
        yield connection
