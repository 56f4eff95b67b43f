"""Row marks: pins and tags, in the root, so that a lost database loses none, and in the catalog, to be listed by.

The root is marked first; the catalog follows, at once or when its database answers again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from model_checkpoint.checkpoint.catalog.marked_rows import NOTE, PIN, TAG, UNPIN, UNTAG, Marking
from model_checkpoint.checkpoint.keeping.removal import store_of
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.engine.root.marking import note, pin, tag, unpin, untag
from model_checkpoint.storage.contract.store import Store


def pin_row(services: Services, row: Checkpoint, *, pinned: bool) -> Checkpoint:
    """Protect a checkpoint from retention, or let it go like any other."""
    mark = pin if pinned else unpin
    return _mark(services, row, Marking(PIN if pinned else UNPIN), lambda store: mark(store, name=row.name))


def tag_row(services: Services, row: Checkpoint, tags: Sequence[str]) -> Checkpoint:
    """Add words to be found and kept by."""
    return _mark(services, row, Marking(TAG, tags), lambda store: tag(store, *tags, name=row.name))


def untag_row(services: Services, row: Checkpoint, tags: Sequence[str]) -> Checkpoint:
    """Take words off; those it does not have change nothing."""
    return _mark(services, row, Marking(UNTAG, tags), lambda store: untag(store, *tags, name=row.name))


def note_row(services: Services, row: Checkpoint, text: str) -> Checkpoint:
    """Write a remark in place of the former; an empty one removes it."""
    return _mark(services, row, Marking(NOTE, (text,)), lambda store: note(store, text, name=row.name))


def _mark(services: Services, row: Checkpoint, marking: Marking, mark: Callable[[Store], object]) -> Checkpoint:
    with services.reporting_failure(marking.action, row.id, row.experiment_id):
        mark(store_of(services, row))
        after = services.catalog.record_marking(row, marking)
    with services.failures.tolerated("cache"):
        services.caches.invalidate_checkpoint(row.id)
    return after
