"""Newest healthy: the newest checkpoint of which every byte is as it was saved.

For trainers that must know where a run was before the objects exist that the rest is loaded into: what they were told
must not turn out to be damaged later.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.reading.first_healthy import first_healthy
from model_checkpoint.engine.reading.verify import damage_of
from model_checkpoint.engine.root.listing import ListedCheckpoint
from model_checkpoint.engine.root.refs import choose
from model_checkpoint.errors import CheckpointNotFound, CheckpointWarning, CorruptedCheckpoint, StorageFailure
from model_checkpoint.plan import LoadReport
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import Root


@dataclass(frozen=True, slots=True)
class HealthyCheckpoint:
    """Its folder's name, and what was passed over to find it."""

    name: str
    report: LoadReport


def newest_healthy(root: Root) -> HealthyCheckpoint | None:
    """Read checkpoints back, newest first, until one is whole; None where nothing was saved yet.

    Raises:
        CorruptedCheckpoint: there are checkpoints, and none is whole.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-whole", {"a": 1}, step=7)
        >>> newest_healthy("memory://doc-whole").name, newest_healthy("memory://doc-none")
        ('step-00000007', None)
    """
    try:
        store, choices = choose(root)
    except CheckpointNotFound:
        return None
    found, passed = first_healthy(store, choices, lambda one: _require_whole(store, one))
    report = LoadReport(checkpoint=path_of(store, found.name), passed_over=tuple(passed))
    if passed:
        warnings.warn(CheckpointWarning(report.tell(), report), stacklevel=2)
    return HealthyCheckpoint(found.name, report)


def _require_whole(store: Store, found: ListedCheckpoint) -> ListedCheckpoint:
    if found.error is not None:
        raise found.error
    for wrong in damage_of(store, found.name):
        where = path_of(store, found.name)
        if wrong.unread:
            raise StorageFailure(wrong.problem, where)
        raise CorruptedCheckpoint(wrong.problem, where, file=wrong.file, chunk=wrong.chunk)
    return found
