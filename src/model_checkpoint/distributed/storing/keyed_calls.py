"""Keyed calls: the calls of a user's storage, repeated where that helps, their errors typed.

A call that may be made twice goes through the fault handler; to create a key is decided once, so it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from model_checkpoint.distributed.storing.storage_contract import CheckpointStorage, FaultHandler, StorageMetadata
from model_checkpoint.errors import CheckpointException
from model_checkpoint.storage.contract.failures import typed

T = TypeVar("T")
Gate = Callable[[bool], AbstractContextManager[None]]  # around what publishes; whether a verdict can still undo it


def _ungated(settled: bool) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class KeyedCalls:
    """One storage as the store sees it; what is missing is a ``FileNotFoundError``, as the storage raises it."""

    storage: CheckpointStorage
    url: str
    handler: FaultHandler | None = None
    gate: Gate = _ungated

    def _call(self, path: str, doing: str, call: Callable[[], T], *, twice: bool = True) -> T:
        try:
            return call() if self.handler is None or not twice else self.handler.execute_with_retry(call)
        except (CheckpointException, FileNotFoundError):
            raise
        except OSError as error:
            where = f"{self.url}/{path}"
            raise typed(error, where, doing) from error

    def write(self, path: str, data: bytes) -> None:
        """Keep bytes, whatever was there."""
        self._call(path, "could not be written", lambda: self.storage.write(path, data))

    def create(self, path: str, data: bytes) -> bool:
        """Keep bytes only if there is nothing."""
        return self._call(path, "could not be created", lambda: self.storage.create(path, data), twice=False)

    def read(self, path: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes of a path."""
        return self._call(path, "could not be read", lambda: self.storage.read(path, start, stop))

    def exists(self, path: str) -> bool:
        """Whether there is something."""
        return self._call(path, "could not be looked at", lambda: self.storage.exists(path))

    def delete(self, path: str) -> None:
        """Remove a path."""
        self._call(path, "could not be removed", lambda: self.storage.delete(path))

    def list(self, prefix: str) -> list[str]:
        """Every path that begins with ``prefix``."""
        return self._call(prefix, "could not be listed", lambda: sorted(self.storage.list(prefix)))

    def look(self, path: str) -> StorageMetadata:
        """Size and time."""
        return self._call(path, "could not be looked at", lambda: self.storage.get_metadata(path))
