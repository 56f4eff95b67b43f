"""Shared: what a store must be able to do for many ranks to write one checkpoint, or to delete one.

Rank 0 begins the attempt and publishes it; the others join it. Whoever loses patience settles it: either the attempt is
in place by then, or it never will be, whatever a rank does that was stopped and goes on later. A deletion is settled in
the same way: the checkpoint is gone by then, or this deletion never takes it away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from model_checkpoint.storage.contract.store import Attempt, Reader


class JointAttempt(Attempt, Protocol):
    """An attempt to which many ranks write; ``stamps`` are those of all files, whoever wrote them."""

    def flush(self) -> None:
        """Make the names of the files written here survive power loss."""
        ...

    def open(self, file: str) -> Reader:
        """Open a file of the attempt that is sealed, whoever wrote it."""
        ...

    def drop(self, files: Sequence[str]) -> None:
        """Remove files of the attempt, whoever wrote them, before it is published."""
        ...


@runtime_checkable
class SharedStore(Protocol):
    """A store in which many processes can write one checkpoint."""

    def stage_shared(self, name: str, attempt: str) -> JointAttempt:
        """Begin an attempt that others join."""
        ...

    def join(self, name: str, attempt: str) -> JointAttempt:
        """Take part in an attempt; raise ``RootNotShared`` when it cannot be seen here.

        What this attempt's ``publish`` would do is the business of the one that began it; ``abort`` only lets go.
        """
        ...

    def settle(self, name: str, attempt: str) -> bool:
        """End an attempt for good: True if it is published, False if it can never be."""
        ...


@runtime_checkable
class SharedTrash(Protocol):
    """A store from which many processes can delete one checkpoint together."""

    def plan_discard(self, name: str) -> str:
        """A token for the deletion of ``name``, under which it will be decided; nothing is done yet."""
        ...

    def discard_planned(self, token: str) -> None:
        """Move the checkpoint to the trash, durably; raise ``StorageFailure`` (ENOENT) if that was given up."""
        ...

    def settle_discard(self, token: str) -> bool:
        """End a deletion for good: True if the checkpoint is gone, durably, False if this deletion never takes it."""
        ...
