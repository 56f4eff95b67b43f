"""Sidecars: small values a root keeps beside its checkpoints, such as pins, tags, notes, and what is being deleted.

Each has a key of its own and is replaced as a whole, so that two people who mark different things never undo each
other. What lies there may be anybody's: whoever reads one checks its seal first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from model_checkpoint.errors import CheckpointException, StorageFailure
from model_checkpoint.storage.contract.store import Store

SIDECAR_BYTES = 1 << 20

SidecarRead = tuple[str, bytes | CheckpointException]  # a key, and what was found under it


@runtime_checkable
class SidecarKeeper(Protocol):
    """A store that keeps small values; each call is durable when it returns, and happened whole or not at all."""

    def read_sidecars(self, word: str = "") -> Iterator[SidecarRead]:
        """Every key that has ``word`` in it, with its bytes, or with the error that keeps us from reading them."""
        ...

    def write_sidecar(self, key: str, data: bytes) -> None:
        """Keep ``data`` (at most :data:`SIDECAR_BYTES`) under ``key``, in place of what was there."""
        ...

    def remove_sidecar(self, key: str) -> None:
        """Forget ``key``; one already gone is no error. Works where there is no room."""
        ...


def sidecars_of(store: Store) -> SidecarKeeper:
    """The store as one that keeps sidecars; raise if it cannot.

    Example:
        >>> from model_checkpoint.storage import open_store
        >>> shelf = sidecars_of(open_store("memory://doc-sidecars"))
        >>> shelf.write_sidecar("pin.1", b"yes")
        >>> list(shelf.read_sidecars())
        [('pin.1', b'yes')]
    """
    if isinstance(store, SidecarKeeper):
        return store
    raise StorageFailure(
        f"{store.url}: this store keeps no pins, tags or notes. Give {type(store).__name__} the methods of "
        "SidecarKeeper (read_sidecars, write_sidecar, remove_sidecar).",
        store.url,
    )


def seal(line: bytes) -> bytes:
    """One line, and its digest: whoever reads it wrongly would remove what is needed.

    Example:
        >>> unseal(seal(b"{}")), unseal(seal(b"{}")[1:])
        (b'{}', None)
    """
    return line + b"\n" + hashlib.sha256(line).hexdigest().encode()


def unseal(data: bytes) -> bytes | None:
    """The line, or None if it is not what was sealed."""
    line, _, digest = data.partition(b"\n")
    return line if hashlib.sha256(line).hexdigest().encode() == digest else None
