"""File URLs: a SQLite file as the URL that names it, whatever characters its path has."""

from __future__ import annotations

from urllib.parse import quote, unquote

SQLITE_FILE = "sqlite:///"
_AS_THEY_ARE = "/ :+,;=@&$!*'()~[]"  # which mean nothing else behind three slashes


def file_url(path: str) -> str:
    """The URL of a file.

    Example:
        >>> file_url("/runs/50%/what?/catalog.db")
        'sqlite:////runs/50%25/what%3F/catalog.db'
    """
    return f"{SQLITE_FILE}{quote(path, safe=_AS_THEY_ARE)}"


def file_of(database_url: str) -> str:
    """The file of a URL, without what may be asked of its driver.

    Example:
        >>> file_of(file_url("/runs/50%/what?/catalog.db"))
        '/runs/50%/what?/catalog.db'
    """
    return unquote(database_url.removeprefix(SQLITE_FILE).partition("?")[0])
