"""Served places: what lies below the paths and URLs a caller names: catalogs, roots, or folders of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from model_checkpoint.database.opening.database_url import read_url, shown
from model_checkpoint.database.values.file_urls import file_url
from model_checkpoint.errors import CheckpointNotFound

CATALOGS = ("catalog.db", "experiments.db")
_ROOT_MARK = "checkpoints"
_DEPTH, _MOST = 3, 2000  # folders below one that is named


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPlaces:
    """Databases by URL, and roots that none of them covers for certain."""

    databases: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()


def discover(places: Sequence[str]) -> ServedPlaces:
    """Look below every place; a folder may be a root, hold a catalog, or hold folders that do.

    Example:
        >>> discover(["s3://bucket/runs/a", "sqlite:///runs.db"])
        ServedPlaces(databases=('sqlite:///runs.db',), roots=('s3://bucket/runs/a',))

    Raises:
        CheckpointNotFound: There is no such folder.
    """
    databases, roots = dict[str, None](), dict[str, None]()
    for place in places:
        for kind, found in _below(place):
            (databases if kind == "database" else roots)[found] = None
    return ServedPlaces(databases=tuple(databases), roots=tuple(roots))


def _below(place: str) -> Iterator[tuple[str, str]]:
    if "://" in place:
        yield ("database" if is_database(place) else "root"), place
        return
    path = os.path.abspath(os.path.expanduser(place))
    if os.path.isfile(path):
        yield "database", file_url(path)
        return
    if not os.path.isdir(path):
        raise CheckpointNotFound(
            f"{place}: no such folder or file. Name a root, a folder of roots, a catalog file or a database URL.", place
        )
    yield from _in_folders(_folders(path))


_SQL = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")


def is_database(place: str) -> bool:
    """Whether a place is the URL of a database."""
    return "://" in place and place.partition("://")[0].partition("+")[0] in _SQL


def said(places: Iterable[str]) -> str:
    """Places as they may stand on a terminal or in a log: without passwords.

    Example:
        >>> said(["runs", "postgresql://me:hush@db/runs"])
        'runs, postgresql+psycopg://me:***@db/runs'
    """
    return ", ".join(shown(read_url(place)) if is_database(place) else place for place in places)


def _folders(top: str) -> Iterator[str]:
    """The folder and those below it, not into roots, hidden ones or links; a bounded number."""
    for seen, (folder, names, _) in enumerate(os.walk(top), start=1):
        depth = folder[len(top) :].count(os.sep)
        is_root = _ROOT_MARK in names
        names[:] = [] if is_root or depth >= _DEPTH else sorted(one for one in names if not one.startswith("."))
        yield folder
        if seen >= _MOST:
            return


def _in_folders(folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for name in CATALOGS:
            if os.path.isfile(f"{folder}/{name}"):
                yield "database", file_url(f"{folder}/{name}")
        if os.path.isdir(f"{folder}/{_ROOT_MARK}"):
            yield "root", folder
