"""Catalog echo: what a verb did to a root, told to the catalog that indexes it.

The root is the truth and was changed first; a catalog that cannot be told is no failure, since `mckpt reindex` makes
it right, but it is remarked on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    from model_checkpoint.engine.repairing.repair import RepairReport

log = logging.getLogger("model_checkpoint.cli")


def echo_marks(info: CheckpointInfo, action: str, database: str = "") -> bool:
    """Tell the catalog of pins, tags and the note of a checkpoint; says whether there was one to tell."""
    fields: dict[str, Any] = {"pinned": info.pinned, "tags": list(info.tags), "notes": info.note}
    return _echo([info], action, database, lambda catalog, id: catalog.update_checkpoint(id, **fields))


def echo_removed(infos: Sequence[CheckpointInfo], database: str = "") -> bool:
    """Tell the catalog that checkpoints are in the trash."""
    return _echo(infos, "delete", database, _delete)


@contextmanager
def echoing_retention(root: str, database: str, *, idle: bool) -> Iterator[dict[str, Any]]:
    """Tell the catalog of all that is gone from a root when the block ends, however it ends.

    What the block puts into the dictionary is told with each.
    """
    details: dict[str, Any] = {}
    if idle or root_catalog_url(root, database) is None:
        yield details
        return
    before = list_checkpoints(root)
    try:
        yield details
    finally:
        left = set(open_store(root).names())
        gone = [info for info in before if info.id and info.prefix not in left]
        _echo(gone, "retention", database, _delete, details=details)


def _delete(catalog: EnhancedDatabaseConnection, id: str) -> None:
    catalog.delete_checkpoint(id)


def echo_repair(report: RepairReport, database: str = "") -> None:
    """Tell the catalog which checkpoints are whole again, and of which something is lost."""
    lost = {one.checkpoint for one in report.lost}
    mended = {one.checkpoint for one in report.repaired} - lost
    whole = [info for info in report.examined if info.id and info.prefix in mended]
    broken = [info for info in report.examined if info.id and info.prefix in lost]
    _echo(whole, "repair", database, _note_nothing if report.unread else _note_whole)
    _echo(broken, "repair", database, _note_nothing, outcome="failed")


def _note_nothing(catalog: EnhancedDatabaseConnection, id: str) -> None:
    """The audit entry says it all."""


def _note_whole(catalog: EnhancedDatabaseConnection, id: str) -> None:
    from model_checkpoint.database import IntegrityRecord

    catalog.record_integrity(IntegrityRecord(checkpoint_id=id, outcome="healthy", method="repair"))


def echo_restored(info: CheckpointInfo, database: str = "") -> bool:
    """Tell the catalog that a checkpoint is back."""
    return _echo([info], "restore", database, lambda catalog, id: catalog.undelete_checkpoint(id))


def _echo(
    infos: Sequence[CheckpointInfo],
    action: str,
    database: str,
    tell: Callable[[EnhancedDatabaseConnection, str], object],
    *,
    outcome: str = "ok",
    details: Mapping[str, Any] | None = None,
) -> bool:
    """Tell the catalog of each root what was done to those of ``infos`` that lie there, each with an audit entry."""

    def tell_one(catalog: EnhancedDatabaseConnection, info: CheckpointInfo) -> None:
        tell(catalog, info.id)
        own = {"name": info.prefix, "by": "mckpt", **(details or {})}
        catalog.record_audit(action, info.id, outcome=outcome, details=own)

    roots = {parse_ref(info).root for info in infos}
    told = [_echo_root(root, infos, database, tell_one) for root in sorted(roots)]
    return any(told)


def _echo_root(
    root: str,
    infos: Sequence[CheckpointInfo],
    database: str,
    tell: Callable[[EnhancedDatabaseConnection, CheckpointInfo], None],
) -> bool:
    url = root_catalog_url(root, database)
    if url is None:
        return False
    from model_checkpoint.database import open_catalog

    try:
        with open_catalog(url, auto_migrate=False) as catalog:
            for info in infos:
                if parse_ref(info).root == root:
                    _echo_one(catalog, info, tell)
    except CheckpointException as error:
        log.warning("the catalog could not be told (%s); `mckpt reindex %s` makes it right", error, root)
        return False
    return True


def _echo_one(
    catalog: EnhancedDatabaseConnection,
    info: CheckpointInfo,
    tell: Callable[[EnhancedDatabaseConnection, CheckpointInfo], None],
) -> None:
    try:
        catalog.together(lambda: tell(catalog, info))
    except WrongReference:
        log.warning("%s is not in the catalog; `mckpt reindex` puts it there", info.path)
