"""Shared: what a store must be able to do for many ranks to write one checkpoint.

Rank 0 begins the attempt and publishes it; the others join it. Whoever loses patience settles it: either the attempt is
in place by then, or it never will be, whatever a rank does that was stopped and goes on later.
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
