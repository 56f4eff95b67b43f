"""Catalog echo: what a verb did to a root, told to the catalog that indexes it.

The root is the truth and was changed first; a catalog that cannot be told is no failure, since `mckpt reindex` makes
it right, but it is remarked on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from model_checkpoint.cli.finding.catalogs import root_catalog_url
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.root.listing import list_checkpoints
from model_checkpoint.engine.root.refs import parse_ref
from model_checkpoint.errors import CheckpointException, WrongReference
from model_checkpoint.storage.locate import open_store

if TYPE_CHECKING:  # brings SQLAlchemy
    from model_checkpoint.database import EnhancedDatabaseConnection

log = logging.getLogger("model_checkpoint.cli")


def echo_marks(info: CheckpointInfo, action: str, database: str = "") -> bool:
    """Tell the catalog of pins, tags and the note of a checkpoint; says whether there was one to tell."""
    fields: dict[str, Any] = {"pinned": info.pinned, "tags": list(info.tags), "notes": info.note}
    return _echo([info], action, database, lambda catalog, id: catalog.update_checkpoint(id, **fields))


def echo_removed(infos: Sequence[CheckpointInfo], database: str = "") -> bool:
    """Tell the catalog that checkpoints are in the trash."""
    return _echo(infos, "delete", database, lambda catalog, id: catalog.delete_checkpoint(id))


@contextmanager
def echoing_removals(root: str, database: str, *, idle: bool) -> Iterator[None]:
    """Tell the catalog of all that is gone from a root when the block ends, however it ends."""
    if idle or root_catalog_url(root, database) is None:
        yield
        return
    before = list_checkpoints(root)
    try:
        yield
    finally:
        left = set(open_store(root).names())
        echo_removed([info for info in before if info.id and info.prefix not in left], database)


def echo_restored(info: CheckpointInfo, database: str = "") -> bool:
    """Tell the catalog that a checkpoint is back."""
    return _echo([info], "restore", database, lambda catalog, id: catalog.undelete_checkpoint(id))


def _echo(
    infos: Sequence[CheckpointInfo],
    action: str,
    database: str,
    tell: Callable[[EnhancedDatabaseConnection, str], object],
) -> bool:
    roots = {parse_ref(info).root for info in infos}
    told = [_echo_root(root, infos, action, database, tell) for root in sorted(roots)]
    return any(told)


def _echo_root(
    root: str,
    infos: Sequence[CheckpointInfo],
    action: str,
    database: str,
    tell: Callable[[EnhancedDatabaseConnection, str], object],
) -> bool:
    url = root_catalog_url(root, database)
    if url is None:
        return False
    from model_checkpoint.database import open_catalog

    try:
        with open_catalog(url, auto_migrate=False) as catalog:
            for info in infos:
                if parse_ref(info).root == root:
                    _echo_one(catalog, info, action, tell)
    except CheckpointException as error:
        log.warning("the catalog could not be told (%s); `mckpt reindex %s` makes it right", error, root)
        return False
    return True


def _echo_one(
    catalog: EnhancedDatabaseConnection,
    info: CheckpointInfo,
    action: str,
    tell: Callable[[EnhancedDatabaseConnection, str], object],
) -> None:
    def both() -> None:
        tell(catalog, info.id)
        catalog.record_audit(action, info.id, details={"name": info.prefix, "by": "mckpt"})

    try:
        catalog.together(both)
    except WrongReference:
        log.warning("%s is not in the catalog; `mckpt reindex` puts it there", info.path)
