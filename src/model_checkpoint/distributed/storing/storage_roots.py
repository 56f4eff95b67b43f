"""Storage roots: from whatever is called a storage to the store of the engine."""

from __future__ import annotations

import os

from model_checkpoint.distributed.storing.folder_storage import FolderStorage
from model_checkpoint.distributed.storing.keyed_store import KeyedStore
from model_checkpoint.distributed.storing.storage_contract import CheckpointStorage
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import Root, open_store

Storage = CheckpointStorage | Root

_CALLS = ("write", "create", "read", "exists", "delete", "list", "get_metadata")


def store_of(storage: Storage) -> Store:
    """The store of a path, a URL, a storage, or the store itself.

    Example:
        >>> store_of("memory://doc-store-of").url
        'memory://doc-store-of'
        >>> store_of(42)
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: 42 is no storage: expected a path, a URL, or an object with write, ...
    """
    if isinstance(storage, FolderStorage):
        return storage.store
    if isinstance(storage, (str, os.PathLike, Store)):
        return open_store(storage)
    missing = [name for name in _CALLS if not callable(getattr(storage, name, None))]
    if missing:
        raise OptionInvalid(
            f"{str(storage)[:80]} is no storage: expected a path, a URL, or an object with {', '.join(_CALLS)}; it "
            f"lacks {', '.join(missing)}. Nothing was done."
        )
    return KeyedStore(storage)
