"""Recover: clear what dead saves left behind. Runs at the first save of a process on a root, and in `mckpt gc`."""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from model_checkpoint import forks
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.option_checks import require
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.root.delete import look_at
from model_checkpoint.engine.root.listing import ListedCheckpoint, require_root, scan
from model_checkpoint.engine.root.marks import forget_marks, marked_ids
from model_checkpoint.errors import CheckpointException, DiskFull
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.store import Store, Swept
from model_checkpoint.storage.locate import Root, open_store

log = logging.getLogger("model_checkpoint.recover")

_done: set[tuple[int, str]] = set()
_lock = forks.lock()


def recover_once(store: Store) -> None:
    """Sweep a root the first time this process saves there; a failing sweep never fails the save."""
    key = (os.getpid(), store.url)  # a forked child sweeps for itself
    with _lock:
        if key in _done:
            return
        _done.add(key)
    if not store.exists():
        return
    try:
        swept = store.sweep(Graces())
    except CheckpointException as error:
        log.warning("%s: recovery could not finish and will be tried by the next process: %s", store.url, error)
        return
    if swept.attempts or swept.trashed:
        log.info(
            "%s: recovery removed %d dead attempts and %d old deletions",
            store.url,
            len(swept.attempts),
            len(swept.trashed),
        )


def tell_of_trash(store: Store, error: Exception) -> None:
    """Add to the error of a full disk what deleted checkpoints still take there, and how to give that up."""
    if not isinstance(error, DiskFull):
        return
    with suppress(CheckpointException):
        held = sum(item.nbytes for item in store.trash())
        if held:
            error.message += (
                f" Deleted and replaced checkpoints that can still be brought back take {held} bytes: "
                f"`mckpt gc --trash {store.url}` gives them up."
            )


def collect_garbage(
    root: Root, *, graces: Graces | None = None, dry_run: bool = False, progress: Listen = None
) -> Swept:
    """Remove leavings of dead saves and deletions past their grace; never what may be alive.

    What is left says in ``waiting`` how long it will be. With ``dry_run`` nothing is removed; what would be is told.
    ``progress`` is called as they go, of all that were there when it began; True shows a bar.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-gc", {"a": 1}, step=1)
        >>> mc.collect_garbage("memory://doc-gc").attempts
        ()
    """
    require(dry_run=dry_run, progress=progress)
    store, graces = open_store(root), graces or Graces()
    require_root(store)
    if dry_run:
        return store.sweep(graces, dry_run=True)
    swept = _sweep_counted(store, graces, progress) if progress else store.sweep(graces)
    _forget_orphans(store)
    return swept


def _sweep_counted(store: Store, graces: Graces, progress: Listen) -> Swept:
    with listening(progress, "removing") as emit:
        there = store.sweep(graces, dry_run=True)
        known = {*there.attempts, *there.trashed}
        meter = Meter("gc", len(known), emit, unit="leavings")

        def tell(key: str) -> None:
            if key not in known:  # it came meanwhile
                meter.expect(1)
            meter.add(1)

        return store.sweep(graces, tell=tell)


def _forget_orphans(store: Store) -> None:
    """Remove pins, tags and notes of what is gone for good; if one manifest cannot be read, nobody knows what is."""
    marked = marked_ids(store)
    if not marked:
        return
    # the trash twice, since something may be deleted or brought back meanwhile; what is marked since, is not looked at
    found = [*_in_trash(store), *scan(store), *_in_trash(store)]
    alive = {one.summary.id for one in found if one.summary is not None}
    orphans = [key for key, id in marked.items() if id not in alive]
    if orphans and all(one.summary is not None for one in found):
        forget_marks(store, orphans)
        log.info("%s: removed %d marks of checkpoints that are gone", store.url, len(orphans))


def _in_trash(store: Store) -> list[ListedCheckpoint]:
    return [look_at(store, gone) for gone in store.trash()]
