"""Opening: from the choices of a caller to everything a manager works with; nothing on disk is touched yet."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from model_checkpoint.checkpoint.catalog.catalog_place import default_url
from model_checkpoint.checkpoint.catalog.checkpoint_index import CheckpointIndex
from model_checkpoint.checkpoint.manager_options import ManagerOptions
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.checkpoint.storage.backend_io import is_native
from model_checkpoint.checkpoint.storage.backend_registry import find_backend, name_of
from model_checkpoint.checkpoint.tolerated_failures import ToleratedFailures
from model_checkpoint.checkpoint.trash_sweeper import TrashSweeper
from model_checkpoint.database import EnhancedDatabaseConnection, open_catalog
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.hooks import HookManager
from model_checkpoint.options import CompressionLevel
from model_checkpoint.performance import CacheManager, OperationMonitor
from model_checkpoint.storage.contract.store import FolderStore, Store
from model_checkpoint.storage.locate import Root, open_store
from model_checkpoint.tracking.migration_hooks import migration_notifier
from model_checkpoint.tracking.spool import Spool

ROW_SECONDS = 2.0  # for which a row is believed unless told otherwise: other processes change them too


def open_services(
    root: Root,
    *,
    tracker: Any,
    backend: Any,
    database_url: str | None,
    options: ManagerOptions,
    cache_size: int,
    cache_ttl: float | None,
) -> Services:
    """Put together what a manager works with; the database is opened when it is first needed."""
    made = find_backend(backend)
    _refuse_foreign(made, options)
    store, hooks, failures = open_store(root), HookManager(), ToleratedFailures()
    connection = _connection(store, tracker, database_url, hooks)
    catalog = CheckpointIndex(connection, Spool(_spool_folder(store, tracker)), failures)
    return Services(
        store=store,
        backend=made,
        catalog=catalog,
        hooks=hooks,
        caches=CacheManager(cache_size, cache_ttl=ROW_SECONDS if cache_ttl is None else cache_ttl),
        monitor=OperationMonitor(),
        options=options,
        failures=failures,
        sweeper=TrashSweeper(store, grace=options.grace, removed=catalog.removed),
    )


def _refuse_foreign(backend: Any, options: ManagerOptions) -> None:
    """Refuse for other backends what only the native one does."""
    asked = {
        "enable_compression": options.compression is not CompressionLevel.NONE,
        "incremental": options.incremental,
        "parity": options.parity is not None,
        "mirror": options.mirror is not None,
    }
    wrong = [name for name, given in asked.items() if given]
    if wrong and not is_native(backend):
        raise OptionInvalid(
            f"{wrong[0]} is of the native backend; {name_of(backend)} does not do it. Leave it out, or choose "
            "storage_backend='native'."
        )


def compression_of(choice: bool | CompressionLevel) -> CompressionLevel:
    """What ``enable_compression`` means.

    Example:
        >>> compression_of(True).value, compression_of(False).value
        ('balanced', 'none')
    """
    if isinstance(choice, CompressionLevel):
        return choice
    if not isinstance(choice, bool):
        raise OptionInvalid(f"enable_compression must be True, False or a CompressionLevel, got {choice!r}.")
    return CompressionLevel.BALANCED if choice else CompressionLevel.NONE


def _connection(store: Store, tracker: Any, database_url: str | None, hooks: HookManager) -> EnhancedDatabaseConnection:
    """The tracker's database, the one that is named, or a file beside the checkpoints."""
    if tracker is not None:
        connection: EnhancedDatabaseConnection = tracker.connection
        if database_url is not None and database_url != connection.database_url:
            raise OptionInvalid(
                f"the tracker keeps its runs in {connection.database_url}, so its checkpoints are recorded there too; "
                f"leave database_url={database_url!r} out."
            )
        connection.tell_changes_to(migration_notifier(hooks))
        return connection
    url = default_url(store) if database_url is None else database_url
    return open_catalog(url, lazy=True, notify=migration_notifier(hooks))


def _spool_folder(store: Store, tracker: Any) -> str:
    """Where rows wait for the database: with the tracker's, in the root, or for a remote root in the user's folder."""
    if tracker is not None:
        return f"{tracker.spool_folder}/checkpoints"
    if isinstance(store, FolderStore):
        return f"{os.path.abspath(store.url)}/.spool"
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return f"{home}/model_checkpoint/{hashlib.sha256(store.url.encode()).hexdigest()[:16]}.spool"
