"""Catalog protocol: what a strategy needs of a catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable


class StrategyCheckpoint(Protocol):
    """What a strategy reads of one checkpoint; ``created_at`` only has to sort."""

    @property
    def id(self) -> str:
        """Its name in the catalog."""
        ...

    @property
    def epoch(self) -> int | None:
        """Where in training it was saved."""
        ...

    @property
    def step(self) -> int:
        """Where in training it was saved."""
        ...

    @property
    def loss(self) -> float | None:
        """Training loss."""
        ...

    @property
    def val_loss(self) -> float | None:
        """Validation loss."""
        ...

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Everything else that was measured."""
        ...

    @property
    def file_size(self) -> int | None:
        """Bytes on disk."""
        ...

    @property
    def created_at(self) -> Any:
        """When it was saved."""
        ...

    @property
    def pinned(self) -> bool:
        """Whether somebody wants it kept."""
        ...


@runtime_checkable
class StrategyCatalog(Protocol):
    """A catalog that a strategy can ask and tell; ``EnhancedCheckpointManager`` is one.

    Example:
        >>> class Nothing:
        ...     def checkpoints(self): return []
        ...     def delete(self, checkpoint_id): ...
        ...     def pin(self, checkpoint_id): ...
        ...     def unpin(self, checkpoint_id): ...
        >>> isinstance(Nothing(), StrategyCatalog)
        True
    """

    def checkpoints(self) -> Iterable[StrategyCheckpoint]:
        """Every checkpoint there is."""
        ...

    def delete(self, checkpoint_id: str) -> object:
        """Forget one checkpoint, row and files."""
        ...

    def pin(self, checkpoint_id: str) -> object:
        """Never forget this one."""
        ...

    def unpin(self, checkpoint_id: str) -> object:
        """Let it go like any other."""
        ...
