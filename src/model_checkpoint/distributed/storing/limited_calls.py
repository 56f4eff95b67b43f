"""Limited calls: the calls of a store for one call with a limit.

What would make a checkpoint visible, or take one away, is not done once the time is over, however long the call before
it has hung; what clears up always is, and so is what was decided already. In a folder that is a rename; in a bucket, or
a storage of the user's own, it is the verdict of many ranks, or else the manifest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar

from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.distributed.storing.keyed_store import KeyedStore
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.contract.names import MANIFEST
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls, WrappedCalls
from model_checkpoint.storage.objects.requests.bucket import BucketRequest, Through
from model_checkpoint.storage.objects.requests.keys import CHECKPOINTS, VERDICT

T = TypeVar("T")


class _LimitedSyscalls(WrappedCalls):
    """The system calls of a store, of which some look at the clock."""

    def __init__(self, inner: Syscalls, limit: CallLimit) -> None:
        super().__init__(inner)
        self._limit = limit


class LimitedCalls(_LimitedSyscalls):
    """The system calls of a store, of which those that publish look at the clock."""

    def rename(self, source: str, target: str, *, out_of: int | None = None, into: int | None = None) -> None:
        """Rename; a stage or a manifest to where readers see it only in time."""
        if ("/.staging/" in source and "/checkpoints/" in target) or (target == MANIFEST and into is not None):
            with self._limit.passing():
                super().rename(source, target, out_of=out_of, into=into)
        else:
            super().rename(source, target, out_of=out_of, into=into)

    def exchange(self, one: str, other: str) -> None:
        """Let two names change places, in time."""
        with self._limit.passing():
            super().exchange(one, other)


class LimitedDeletion(_LimitedSyscalls):
    """The system calls of a store, of which those that take a checkpoint away look at the clock."""

    def rename(self, source: str, target: str, *, out_of: int | None = None, into: int | None = None) -> None:
        """Rename; a checkpoint to the trash only in time."""
        with self._limit.passing() if "/checkpoints/" in source else nullcontext():
            super().rename(source, target, out_of=out_of, into=into)

    def unlink(self, path: str) -> None:
        """Remove a file; a manifest, where a full disk has no room for the trash, only in time."""
        with self._limit.passing(settled=False) if path.endswith(f"/{MANIFEST}") else nullcontext():
            super().unlink(path)


class _LimitedThrough(ABC):
    """The requests of a bucket, of which a verdict and what :meth:`_matters` names look at the clock."""

    def __init__(self, inner: Through, limit: CallLimit, *, alone: bool) -> None:
        self._inner, self._limit, self._alone = inner, limit, alone

    def __call__(self, request: BucketRequest, call: Callable[[], T]) -> T:
        """Make a request; one that decides only in time."""
        verdict = request.nbytes > 0 and request.key.endswith(VERDICT)
        if not request.decides or not (verdict or (self._alone and self._matters(request))):
            return self._inner(request, call)
        with self._limit.passing(settled=verdict):
            return self._inner(request, call)

    @abstractmethod
    def _matters(self, request: BucketRequest) -> bool:
        """Whether this one publishes, or deletes, where no verdict does."""


class LimitedRequests(_LimitedThrough):
    """The requests of a bucket, of which those that publish look at the clock."""

    def _matters(self, request: BucketRequest) -> bool:
        manifest = request.key.startswith(f"{CHECKPOINTS}/") and request.key.endswith(f"/{MANIFEST}")
        return manifest and request.nbytes > 0


class LimitedRemovals(_LimitedThrough):
    """The requests of a bucket, of which the one that deletes, or decides so, looks at the clock."""

    def _matters(self, request: BucketRequest) -> bool:
        return request.nbytes == 0 and request.key.endswith(f"/{MANIFEST}")


def limited(store: Store, limit: CallLimit, *, alone: bool = True) -> Store:
    """The same store, which publishes nothing once the time is over; ``alone``: for a single process.

    Example:
        >>> from model_checkpoint.storage import open_store
        >>> limited(open_store("runs/a"), CallLimit("the save", seconds=5)).url.endswith("runs/a")
        True
    """
    return _gated(store, limit, LimitedCalls, LimitedRequests, alone=alone)


def deleting(store: Store, limit: CallLimit, *, alone: bool = True) -> Store:
    """The same store, which deletes nothing once the time is over; ``alone``: if no verdict decides about it."""
    return _gated(store, limit, LimitedDeletion, LimitedRemovals, alone=alone)


def _gated(
    store: Store, limit: CallLimit, calls: type[_LimitedSyscalls], requests: type[_LimitedThrough], *, alone: bool
) -> Store:
    limit.gated = isinstance(store, (LocalStore, ObjectStore, KeyedStore))
    if isinstance(store, LocalStore):
        return store.with_calls(lambda inner: calls(inner, limit))
    if isinstance(store, ObjectStore):
        return store.with_requests(lambda through: requests(through, limit, alone=alone))
    return store.gated(limit.passing) if isinstance(store, KeyedStore) else store
