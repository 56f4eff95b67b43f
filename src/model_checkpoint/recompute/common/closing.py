"""Closing: what is open until ``close()`` or the end of a ``with`` block, and refuses work afterwards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from model_checkpoint.recompute.errors import ClosedError


class Closing(ABC):
    """A context manager that is told by its own ``_closed``; ``_called`` is what people read in the error."""

    _called: ClassVar[str]
    _closed: bool

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; doing it again is harmless."""

    def dispose(self) -> None:
        """Close."""
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self._called}: it is closed. Make a new one.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
