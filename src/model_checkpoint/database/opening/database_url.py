"""Database URL: which database is meant, and what of the URL may be shown."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from model_checkpoint.database.values.file_urls import SQLITE_FILE, file_of
from model_checkpoint.errors import OptionInvalid

_DRIVERS = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
_SECRET = ("pass", "secret", "token", "key", "credential")
_HIDDEN = "***"


def read_url(text: str | URL) -> URL:
    """The URL with the driver we use, and a file by its full path, so that a change of folder does not move it.

    Example:
        >>> read_url("postgresql://me@db/runs").drivername
        'postgresql+psycopg'
    """
    if isinstance(text, str) and ":" not in text:
        raise OptionInvalid(f"database_url: {text!r} is no URL. For a file write 'sqlite:///{text}'.")
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise OptionInvalid(
            "database_url: not a URL such as 'sqlite:///experiments.db' or 'postgresql://user:password@host/name'; "
            "special characters in a password are written as %xx."
        ) from error
    url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
    if isinstance(text, str) and text.startswith(SQLITE_FILE):
        url = url.set(database=file_of(text) or None)  # before SQLAlchemy 2.1, %xx meant itself
    if is_file(url):
        url = url.set(database=str(Path(url.database or "").expanduser().absolute()))
    return url


def is_sqlite(url: URL) -> bool:
    """Whether SQLite serves it."""
    return url.get_backend_name() == "sqlite"


def is_file(url: URL) -> bool:
    """Whether it is a plain SQLite file."""
    return is_sqlite(url) and not is_memory(url) and not str(url.database).startswith("file:")


def is_memory(url: URL) -> bool:
    """Whether it is a SQLite database that ends with its process."""
    return is_sqlite(url) and (not url.database or url.database == ":memory:" or "mode=memory" in str(url))


def shown(url: URL) -> str:
    """The URL as it may stand in a log or a message.

    Example:
        >>> shown(read_url("mysql://me:hush@db/runs?ssl_key_password=hush"))
        'mysql+pymysql://me:***@db/runs?ssl_key_password=***'
    """
    hidden = {key: _HIDDEN for key in url.query if any(word in key.lower() for word in _SECRET)}
    text = url.update_query_dict(hidden) if hidden else url
    return text.render_as_string(hide_password=True).replace("%2A%2A%2A", _HIDDEN)


def secrets_of(url: URL) -> list[str]:
    """What of the URL must not be shown."""
    values = [str(value) for key, value in url.query.items() if any(word in key.lower() for word in _SECRET)]
    return [text for text in (str(url.password or ""), *values) if text]
