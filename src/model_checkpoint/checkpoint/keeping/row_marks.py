"""Row marks: pins and tags, in the root, so that a lost database loses none, and in the catalog, to be listed by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model_checkpoint.checkpoint.keeping.removal import store_of
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.engine.root.marking import note, pin, tag, unpin, untag


def pin_row(services: Services, row: Checkpoint, *, pinned: bool) -> Checkpoint:
    """Protect a checkpoint from retention, or let it go like any other."""
    (pin if pinned else unpin)(store_of(services, row), name=row.name)
    return _update(services, row, "pin" if pinned else "unpin", pinned=pinned)


def tag_row(services: Services, row: Checkpoint, tags: Sequence[str]) -> Checkpoint:
    """Add words to be found and kept by."""
    tag(store_of(services, row), *tags, name=row.name)
    return _update(services, row, "tag", tags=list(dict.fromkeys((*row.tags, *tags))))


def untag_row(services: Services, row: Checkpoint, tags: Sequence[str]) -> Checkpoint:
    """Take words off; those it does not have change nothing."""
    untag(store_of(services, row), *tags, name=row.name)
    return _update(services, row, "untag", tags=[one for one in row.tags if one not in tags])


def note_row(services: Services, row: Checkpoint, text: str) -> Checkpoint:
    """Write a remark in place of the former; an empty one removes it."""
    note(store_of(services, row), text, name=row.name)
    return _update(services, row, "note", notes=text)


def _update(services: Services, row: Checkpoint, action: str, **fields: Any) -> Checkpoint:
    after = services.catalog.connection.update_checkpoint(row.id, **fields)
    with services.failures.tolerated("cache"):
        services.caches.invalidate_checkpoint(row.id)
    services.catalog.audit(action, row.id, **fields)
    return after
