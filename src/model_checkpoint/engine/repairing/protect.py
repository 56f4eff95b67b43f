"""Protect: what follows a save: its parity files and its mirror, and those that earlier processes did not get to."""

from __future__ import annotations

import logging
import os

from model_checkpoint import forks
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.jobs.followups import FollowUp, follow_up
from model_checkpoint.engine.repairing.mirror import copy_checkpoint
from model_checkpoint.engine.repairing.parity_writer import make_parity
from model_checkpoint.engine.root.listing import read_listed, scan
from model_checkpoint.engine.root.protection import has_parity
from model_checkpoint.errors import CheckpointException
from model_checkpoint.manifest import Summary
from model_checkpoint.storage.contract.store import Store

log = logging.getLogger("model_checkpoint.repair")

_caught_up: set[tuple[int, str, str]] = set()
_lock = forks.lock()


def protect(store: Store, summary: Summary, mirror: Store | None) -> FollowUp | None:
    """Have the parity files of a checkpoint just saved made, then its copy in the mirror; None if neither is wanted."""
    if not summary.parity_files and mirror is None:
        return None

    def work() -> None:
        _protect_one(store, summary, mirror)
        _catch_up(store, mirror)

    return follow_up(store.url, path_of(store, summary.name), work)


def _protect_one(store: Store, summary: Summary, mirror: Store | None) -> None:
    """Make what is missing; a failure of the parity does not keep the mirror from being made."""
    name = summary.name
    try:
        try:
            make_parity(store, name)
        finally:
            if mirror is not None:
                copy_checkpoint(store, name, mirror)
    except CheckpointException:
        found = read_listed(store, name)
        if found is not None and (found.summary is None or found.summary.id == summary.id):
            raise
        log.info("%s: was deleted or replaced before it was protected", path_of(store, name))


def _catch_up(store: Store, mirror: Store | None) -> None:
    """Do, once in the life of a process, what others that were killed did not get to; failures are only told."""
    key = (os.getpid(), store.url, mirror.url if mirror is not None else "")
    with _lock:
        if key in _caught_up:
            return
        _caught_up.add(key)
    deleted = {gone.name for gone in mirror.trash()} if mirror is not None else set()
    for found in scan(store):
        if found.summary is None:
            continue
        try:
            if found.summary.parity_files and not has_parity(store, found.summary):
                make_parity(store, found.name)
            wanted = mirror is not None and found.summary.mirror == mirror.url and found.name not in deleted
            if wanted and mirror is not None and not mirror.has(found.name):
                copy_checkpoint(store, found.name, mirror)
        except CheckpointException as error:
            log.warning("%s: could not be protected: %s", path_of(store, found.name), error)
