"""Trash sweeper: gives back the room of what was dropped, once its grace is over."""

from __future__ import annotations

import time
from dataclasses import replace

from model_checkpoint import forks
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.store import Store

_LOOKS = 16  # during one grace: what was dropped takes its room a sixteenth longer at most


class TrashSweeper:
    """Sweeps a store when something in its trash may be past its grace, and not more often.

    Example:
        >>> from model_checkpoint.storage import InMemoryStore
        >>> sweeper = TrashSweeper(InMemoryStore("memory://doc-sweeper"), grace=3600.0)
        >>> sweeper.sweep_if_due(), sweeper.sweep_if_due()
        (0, None)
    """

    def __init__(self, store: Store, *, grace: float) -> None:
        self._store, self._grace = store, grace
        self._lock, self._next = forks.lock(), 0.0

    def sweep_if_due(self) -> int | None:
        """Remove what is past its grace and return its bytes; None if it is too early to look."""
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                return None
            self._next = now + self._grace / _LOOKS
        return self._store.sweep(replace(Graces(), trash=self._grace)).nbytes
