"""Storage contract: what a storage of one's own must be able to do for checkpoints to be kept in it.

Seven calls on bytes under paths such as ``checkpoints/epoch-1/manifest.json``. Folders need not be made, and no path
leaves the storage: its parts never are ``.`` or ``..``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageMetadata:
    """What a storage knows of one path."""

    size: int
    last_modified: datetime  # by the clock of the storage, with its time zone
    additional_info: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class CheckpointStorage(Protocol):
    """Keeps bytes under paths. What a call has written survives whatever the call was made to survive."""

    def write(self, path: str, data: bytes) -> None:
        """Keep all of ``data`` under ``path``, in place of what was there; durable when it returns."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Keep ``data`` only if there is nothing; of many who try at once exactly one gets True."""
        ...

    def read(self, path: str, start: int = 0, stop: int | None = None) -> bytes:
        """The bytes ``[start, stop)``, fewer where they end before; raise ``FileNotFoundError`` if there are none."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is something under ``path``."""
        ...

    def delete(self, path: str) -> None:
        """Remove it; one already gone is no error."""
        ...

    def list(self, prefix: str) -> Iterable[str]:
        """Every path that begins with ``prefix``."""
        ...

    def get_metadata(self, path: str) -> StorageMetadata:
        """Size and time; raise ``FileNotFoundError`` if there is nothing."""
        ...


@runtime_checkable
class FaultHandler(Protocol):
    """What is done when a storage fails; :class:`FaultToleranceHandler` is ours."""

    def execute_with_retry(self, operation: Callable[[], T]) -> T:
        """Call ``operation``, again if that may help; return what it returns."""
        ...

    def execute_with_timeout(self, operation: Callable[[], T], timeout: float) -> T:
        """Call ``operation``, and raise ``TimeoutError`` if it is not back within ``timeout`` seconds."""
        ...

    def rollback(self, path: str) -> None:
        """Clear away what a failed save of that prefix left; never raises."""
        ...
