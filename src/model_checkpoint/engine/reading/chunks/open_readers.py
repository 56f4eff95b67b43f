"""Open readers: the files of one checkpoint that are open until all of them are let go of."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from model_checkpoint.storage.contract.store import Reader

K = TypeVar("K")


class OpenReaders(Generic[K]):
    """Readers by what their owner calls the files; a context manager."""

    def __init__(self) -> None:
        self._readers: dict[K, Reader] = {}

    def close(self) -> None:
        """Let go of every file."""
        for reader in self._readers.values():
            reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
