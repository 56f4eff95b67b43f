"""Checkpoint references: a checkpoint of ours wherever Lightning takes the path of one.

It has the methods of Lightning's ``CheckpointIO``, and leaves all files that are not ours to the one that was there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from model_checkpoint.engine.reading.load import load

log = logging.getLogger("model_checkpoint.lightning")


class CheckpointReferences:
    """Loads ``runs/a@best:val_loss`` and the like; a fit that goes on where it was takes nothing else.

    Args:
        inner: What Lightning would use for its own files.
        resumed: The state a fit goes on from, as Lightning's own dictionary; None where it begins anew.
    """

    def __init__(self, inner: Any, resumed: Mapping[str, Any] | None) -> None:
        self.inner, self._resumed = inner, resumed

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> Any:
        """Give the dictionary that was saved; the path is passed over where the run has more to go on from."""
        if self._resumed is not None:
            log.warning("%s is passed over: the run goes on where it was", path)
            return dict(self._resumed)
        if not str(path).endswith((".ckpt", ".pt", ".pth")):
            return load(path)
        return self.inner.load_checkpoint(path, map_location=map_location, weights_only=weights_only)

    def forget(self) -> None:
        """Everything was restored: hold the memory no longer."""
        self._resumed = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write one of Lightning's own files."""
        self.inner.save_checkpoint(checkpoint, path, storage_options=storage_options)

    def remove_checkpoint(self, path: Any) -> None:
        """Remove one of Lightning's own files."""
        self.inner.remove_checkpoint(path)

    def teardown(self) -> None:
        """Nothing is kept open here."""
        self.inner.teardown()
