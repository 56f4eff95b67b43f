"""Retried calls: the calls of a store, made again where that is safe.

To look, to read and to write bytes at an offset may be done twice. A flush that failed is never repeated, since the
second would succeed without the bytes; nor is anything that gives or takes a name, since the first may have worked. Of
a bucket, every request may be repeated but a put with a condition and an upload in parts, whose bytes come but once;
obstore has by then repeated it already, as often as its own settings say.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from model_checkpoint.distributed.storing.keyed_store import KeyedStore
from model_checkpoint.distributed.storing.storage_contract import FaultHandler
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls, WrappedCalls
from model_checkpoint.storage.objects.requests.bucket import BucketRequest, Through

T = TypeVar("T")

REPEATED = ("pwrite", "preadv", "fstat", "stat", "lstat", "listdir", "statvfs")


class RetriedCalls(WrappedCalls):
    """The system calls of a store, with a fault handler around those that may be repeated."""

    def __init__(self, inner: Syscalls, handler: FaultHandler) -> None:
        super().__init__(inner)
        self._handler = handler

    def open(self, path: str, flags: int, *, folder: int | None = None) -> int:
        """Open; a new file only once."""
        if flags & os.O_CREAT:
            return self.inner.open(path, flags, folder=folder)
        return self._handler.execute_with_retry(lambda: self.inner.open(path, flags, folder=folder))

    def perform(self, name: str, action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a call, again if it may be."""
        if name not in REPEATED:
            return action(*args, **kwargs)
        return self._handler.execute_with_retry(lambda: action(*args, **kwargs))


class RetriedRequests:
    """The requests of a bucket, with a fault handler around those that may be repeated."""

    def __init__(self, inner: Through, handler: FaultHandler) -> None:
        self._inner, self._handler = inner, handler

    def __call__(self, request: BucketRequest, call: Callable[[], T]) -> T:
        """Make a request, again if it may be."""
        if request.decides or request.streams:
            return self._inner(request, call)
        return self._handler.execute_with_retry(lambda: self._inner(request, call))


def retried(store: Store, handler: FaultHandler) -> Store:
    """The same store, its calls repeated by a fault handler.

    Example:
        >>> from model_checkpoint.storage import open_store
        >>> from model_checkpoint.distributed import FaultToleranceHandler
        >>> retried(open_store("runs/a"), FaultToleranceHandler("runs/a")).url.endswith("runs/a")
        True
    """
    if isinstance(store, LocalStore):
        return store.with_calls(lambda calls: RetriedCalls(calls, handler))
    if isinstance(store, ObjectStore):
        return store.with_requests(lambda through: RetriedRequests(through, handler))
    return store.retried(handler) if isinstance(store, KeyedStore) else store
