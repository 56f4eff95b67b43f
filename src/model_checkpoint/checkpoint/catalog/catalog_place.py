"""Catalog place: where the catalog of a root lies if nobody says."""

from __future__ import annotations

import os

from model_checkpoint.database.values.file_urls import file_url
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.storage.contract.store import FolderStore, Store

CATALOG = "catalog.db"


def default_url(store: Store) -> str:
    """The catalog of a root that was given none: a SQLite file in it."""
    if not isinstance(store, FolderStore):
        raise OptionInvalid(
            f"{store.url}: a catalog cannot lie beside checkpoints there. Give a tracker, or database_url=, e.g. "
            "'sqlite:///catalog.db' or 'postgresql://...'."
        )
    os.makedirs(store.url, exist_ok=True)
    return file_url(f"{os.path.abspath(store.url)}/{CATALOG}")
