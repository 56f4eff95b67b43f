"""Trash sweeper: gives back the room of what a manager dropped, once its grace is over.

What others put into the trash of the same root was promised a day, and keeps it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace

from model_checkpoint import forks
from model_checkpoint.engine.root.delete import look_at
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.store import Store

_LOOKS = 16  # during one grace: what was dropped takes its room a sixteenth longer at most

Removed = Callable[[Collection[str]], Collection[str]]  # of these ids those that managers have removed


class TrashSweeper:
    """Sweeps a store when something in its trash may be past its grace, and not more often.

    Example:
        >>> from model_checkpoint.storage import InMemoryStore
        >>> sweeper = TrashSweeper(InMemoryStore("memory://doc-sweeper"), grace=3600.0, removed=lambda ids: ids)
        >>> sweeper.sweep_if_due(), sweeper.sweep_if_due()
        (0, None)
    """

    def __init__(self, store: Store, *, grace: float, removed: Removed) -> None:
        self._store, self._grace, self._removed = store, grace, removed
        self._own: set[str] = set()  # dropped by this very manager, whatever the catalog has room for
        self._lock, self._next = forks.lock(), 0.0

    def note(self, checkpoint_id: str) -> None:
        """Remember one that was dropped here."""
        self._own.add(checkpoint_id)

    def sweep_if_due(self) -> int | None:
        """Remove what is past its grace and return its bytes; None if it is too early to look."""
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                return None
            self._next = now + self._grace / _LOOKS
        graces = replace(Graces(), trash=self._grace)
        over = {*self._store.sweep(graces, dry_run=True).trashed}
        return self._store.sweep(replace(graces, only=self._ours(over))).nbytes

    def _ours(self, tokens: Collection[str]) -> frozenset[str]:
        """Those of the deletions past their grace that managers of this catalog made."""
        found = [(one.token, look_at(self._store, one)) for one in self._store.trash() if one.token in tokens]
        ids = {token: one.summary.id for token, one in found if one.summary is not None}
        ours = {*self._own, *self._removed({*ids.values()} - self._own)}
        return frozenset(token for token, id in ids.items() if id in ours)
