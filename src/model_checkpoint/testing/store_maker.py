"""Store maker: what every suite for stores asks of whoever inherits it."""

from __future__ import annotations

from pathlib import Path

from model_checkpoint.storage.contract.store import Store


class StoreMaker:
    """Whose store it is that a suite puts to the test."""

    def make_store(self, folder: Path) -> Store:
        """Return a store on a place that belongs to ``folder``; the same place for the same folder."""
        raise NotImplementedError("a suite for a store says how to make one")
