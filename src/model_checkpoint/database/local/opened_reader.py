"""Opened reader: who answers for a URL: the file itself, or a whole connection.

A server, a file of an earlier or later version, one that cannot be opened and one on a network file system go to the
connection, which tells what is the matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import TYPE_CHECKING, TypeVar

from model_checkpoint.database.local.catalog_reader import CatalogReader
from model_checkpoint.database.local.local_catalog import LocalCatalog
from model_checkpoint.database.local.local_file import LocalFile, is_as_we_know_it
from model_checkpoint.database.values.file_urls import file_of

if TYPE_CHECKING:  # brings SQLAlchemy
    from model_checkpoint.database.connection import EnhancedDatabaseConnection

T = TypeVar("T")


def open_reader(database_url: str) -> AbstractContextManager[CatalogReader]:
    """A catalog to look at; an older schema is told, not changed.

    Example:
        >>> import tempfile
        >>> from model_checkpoint.database import open_catalog
        >>> url = f"sqlite:///{tempfile.mkdtemp()}/catalog.db"
        >>> open_catalog(url).close()
        >>> with open_reader(url) as reader:
        ...     type(reader).__name__, reader.overviews()
        ('LocalCatalog', [])
    """
    return opened(database_url, LocalCatalog)


@contextmanager
def opened(
    database_url: str, answers: Callable[[LocalFile], T], *, writable: bool = False, auto_migrate: bool = False
) -> Iterator[T | EnhancedDatabaseConnection]:
    """What ``answers`` for the file, or a whole connection."""
    if is_as_we_know_it(database_url):
        with closing(LocalFile(file_of(database_url), writable=writable)) as file:
            yield answers(file)
        return
    from model_checkpoint.database.connection_classes import open_catalog

    with open_catalog(database_url, auto_migrate=auto_migrate) as connection:
        yield connection
