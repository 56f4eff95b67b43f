"""Recomputer: what a manager asks of an engine, its own or another's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Recomputer(Protocol):
    """What a manager needs of an engine."""

    def has_recompute_function(self, layer_id: str) -> bool:
        """Whether the layer can be recomputed."""
        ...

    def recompute(self, layer_id: str) -> Any:
        """Recompute it."""
        ...

    def register_recompute_function(
        self, layer_id: str, recompute_function: Callable[[], Any], dependencies: Iterable[str] | None = None
    ) -> None:
        """Remember how it is computed."""
        ...
