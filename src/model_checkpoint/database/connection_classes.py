"""Connection classes: which class serves a URL; whoever has a database SQLAlchemy does not know registers one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from model_checkpoint.database.connection import EnhancedDatabaseConnection
from model_checkpoint.errors import OptionInvalid

_classes: dict[str, Callable[..., Any]] = {}
NEEDED = tuple(
    name
    for name in dir(EnhancedDatabaseConnection)
    if not name.startswith("_") and callable(getattr(EnhancedDatabaseConnection, name))
)


def register_connection(scheme: str, connection_class: type[Any]) -> None:
    """Let URLs of a scheme be served by a class with the methods of ``EnhancedDatabaseConnection``.

    Example:
        >>> class OurConnection(EnhancedDatabaseConnection):
        ...     def __init__(self, database_url, auto_migrate=True):
        ...         super().__init__(database_url.replace("ours:", "sqlite:"), auto_migrate)
        >>> register_connection("ours", OurConnection)
        >>> with open_catalog("ours://") as db:
        ...     type(db).__name__
        'OurConnection'

    Raises:
        OptionInvalid: The class lacks methods; they are named.
    """
    missing = [name for name in NEEDED if not callable(getattr(connection_class, name, None))]
    if missing:
        raise OptionInvalid(f"{connection_class.__qualname__} cannot serve {scheme}: it lacks {', '.join(missing)}.")
    _classes[scheme] = connection_class


def open_catalog(
    database_url: str = "sqlite:///experiments.db", auto_migrate: bool = True, **options: Any
) -> EnhancedDatabaseConnection:
    """Open the catalog a URL names, with the class that serves its scheme.

    Example:
        >>> with open_catalog("sqlite://") as db:
        ...     db.database_url
        'sqlite://'
    """
    scheme = str(database_url).partition("://")[0]
    connection: EnhancedDatabaseConnection = _classes.get(scheme, EnhancedDatabaseConnection)(
        database_url, auto_migrate, **options
    )
    return connection
