"""Native: the engine as a backend."""

from __future__ import annotations

from typing import Any

from model_checkpoint.backend import BaseStorageBackend
from model_checkpoint.engine.reading.load import load
from model_checkpoint.engine.writing.save import save

_NAME = "checkpoint"


class NativeBackend(BaseStorageBackend):
    """What a checkpoint manager uses unless told otherwise; alone it makes a root at the path it is given.

    Example:
        >>> _ = NativeBackend().save_checkpoint({"epoch": 3}, "memory://doc-native")
        >>> NativeBackend().load_checkpoint("memory://doc-native")
        {'epoch': 3}
    """

    def get_name(self) -> str:
        """The name in catalogs; a manifest without any is of this backend."""
        return "native"

    def save_checkpoint(self, data: Any, path: str) -> dict[str, Any]:
        """Save ``data`` as the one checkpoint of the root ``path``."""
        info = save(path, data, name=_NAME)
        return {"file_size": info.size_bytes, "id": info.id}

    def load_checkpoint(self, path: str, device: Any = None) -> Any:
        """Give it back, every byte verified."""
        return load(path, name=_NAME, device=device, verify="full")
