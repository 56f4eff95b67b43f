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
from model_checkpoint.engine.root.listing import list_checkpoints, read_listed, to_info
from model_checkpoint.engine.root.marks import NO_MARKS, Marks, read_marks
from model_checkpoint.engine.root.refs import choose_one, parse_ref
from model_checkpoint.errors import CheckpointException, WrongReference
from model_checkpoint.storage.locate import open_store

if TYPE_CHECKING:
    from model_checkpoint.database.local.catalog_writer import CatalogWriter
    from model_checkpoint.engine.repairing.repair import RepairReport

log = logging.getLogger("model_checkpoint.cli")
_TOOL = "mckpt"  # in the audit trail: by which door it was done


@contextmanager
def echoing_marks(ref: str, action: str, database: str = "") -> Iterator[None]:
    """Tell the catalog of pins, tags and the note of a checkpoint when the block ends, however it ends."""
    root = parse_ref(ref).root
    url = root_catalog_url(root, database)
    if url is None:
        yield
        return
    store, found = choose_one(ref)
    info = to_info(store, found)
    before, done = read_marks(store, info.id).get(info.id, NO_MARKS), False
    try:
        yield
        done = True
    finally:
        now = read_marks(store, info.id).get(info.id, NO_MARKS)
        if done or now != before:
            _tell(url, root, [info], lambda catalog, one: _echo_marks(catalog, one, action, now))


def _echo_marks(catalog: CatalogWriter, info: CheckpointInfo, action: str, marks: Marks) -> None:
    catalog.update_checkpoint(info.id, pinned=marks.pinned, tags=marks.tags, notes=marks.note)
    catalog.record_audit(action, info.id, details={"name": info.prefix, "by": _TOOL})


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


def _delete(catalog: CatalogWriter, id: str) -> None:
    from model_checkpoint.checkpoint.catalog.removed_rows import mark_gone

    mark_gone(catalog, id)


def echo_repair(report: RepairReport, database: str = "") -> None:
    """Tell the catalog which checkpoints are whole again, and of which something is lost."""
    lost = {one.checkpoint for one in report.lost}
    mended = {one.checkpoint for one in report.repaired} - lost
    known = [info for info in report.examined if info.id]
    whole = [info for info in known if info.prefix in mended]
    _echo(whole, "repair", database, _note_nothing if report.unread else _note_whole)
    _echo([info for info in known if info.prefix in lost], "repair", database, _note_nothing, outcome="failed")
    if not report.unread:  # what a repair that was broken off has mended, nobody has told yet
        others = [info for info in known if info.prefix not in lost | mended]
        _echo(others, "repair", database, _note_whole, only=_doubted)


def _doubted(catalog: CatalogWriter, id: str) -> bool:
    row = catalog.get_checkpoint(id)
    return row is not None and row.health in ("damaged", "missing")


def _note_nothing(catalog: CatalogWriter, id: str) -> None:
    """The audit entry says it all."""


def _note_whole(catalog: CatalogWriter, id: str) -> None:
    from model_checkpoint.database.event_records import IntegrityRecord

    catalog.record_integrity(IntegrityRecord(checkpoint_id=id, outcome="healthy", method="repair"))


@contextmanager
def echoing_restored(root: str, database: str = "") -> Iterator[None]:
    """Tell the catalog of what is back in a root when the block ends, however it ends."""
    if root_catalog_url(root, database) is None:
        yield
        return
    store = open_store(root)
    before = set(store.names())
    try:
        yield
    finally:
        listed = [read_listed(store, name) for name in sorted(set(store.names()) - before)]
        back = [info for one in listed if one is not None and (info := to_info(store, one)).id]
        _echo(back, "restore", database, _restore)


def _restore(catalog: CatalogWriter, id: str) -> None:
    from model_checkpoint.checkpoint.catalog.removed_rows import mark_back

    mark_back(catalog, id)


def _echo(
    infos: Sequence[CheckpointInfo],
    action: str,
    database: str,
    tell: Callable[[CatalogWriter, str], object],
    *,
    outcome: str = "ok",
    details: Mapping[str, Any] | None = None,
    only: Callable[[CatalogWriter, str], bool] = lambda _, __: True,
) -> bool:
    """Tell the catalog of each root what was done to those of ``infos`` that lie there, each with an audit entry."""

    def tell_one(catalog: CatalogWriter, info: CheckpointInfo) -> None:
        if not only(catalog, info.id):
            return
        tell(catalog, info.id)
        own = {"name": info.prefix, "by": _TOOL, **(details or {})}
        catalog.record_audit(action, info.id, outcome=outcome, details=own)

    roots = {parse_ref(info).root for info in infos}
    told = [_echo_root(root, infos, database, tell_one) for root in sorted(roots)]
    return any(told)


def _echo_root(
    root: str,
    infos: Sequence[CheckpointInfo],
    database: str,
    tell: Callable[[CatalogWriter, CheckpointInfo], None],
) -> bool:
    url = root_catalog_url(root, database)
    return url is not None and _tell(url, root, [info for info in infos if parse_ref(info).root == root], tell)


def _tell(
    url: str, root: str, infos: Sequence[CheckpointInfo], tell: Callable[[CatalogWriter, CheckpointInfo], None]
) -> bool:
    from model_checkpoint.database.local.opened_writer import open_writer

    try:
        with open_writer(url) as catalog:
            for info in infos:
                _echo_one(catalog, info, tell)
    except CheckpointException as error:
        _remark_untold(root, error)
        return False
    return True


def _remark_untold(root: str, error: CheckpointException) -> None:
    log.warning("the catalog could not be told (%s); `mckpt reindex %s` makes it right", error, root)


def _echo_one(
    catalog: CatalogWriter,
    info: CheckpointInfo,
    tell: Callable[[CatalogWriter, CheckpointInfo], None],
) -> None:
    with _passing_over(info):
        catalog.together(lambda: tell(catalog, info))


@contextmanager
def _passing_over(info: CheckpointInfo) -> Iterator[None]:
    """Go on without a checkpoint that the catalog does not know."""
    try:
        yield
    except WrongReference:
        log.warning("%s is not in the catalog; `mckpt reindex` puts it there", info.path)
