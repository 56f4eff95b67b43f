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
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.storage.objects.requests.bucket import BucketRequest, Through

T = TypeVar("T")

REPEATED = ("pwrite", "preadv", "fstat", "stat", "lstat", "listdir", "statvfs")


class RetriedCalls(Syscalls):
    """The system calls of a store, with a fault handler around those that may be repeated."""

    def __init__(self, inner: Syscalls, handler: FaultHandler) -> None:
        super().__init__()
        self._inner, self._handler = inner, handler
        self.without_direct, self.listed, self.flushed_roots = inner.without_direct, inner.listed, inner.flushed_roots

    def open(self, path: str, flags: int, *, folder: int | None = None) -> int:
        """Open; a new file only once."""
        if flags & os.O_CREAT:
            return self._inner.open(path, flags, folder=folder)
        return self._handler.execute_with_retry(lambda: self._inner.open(path, flags, folder=folder))


def _passed_on(name: str) -> Callable[..., Any]:
    def call(self: RetriedCalls, *args: Any, **kwargs: Any) -> Any:
        real = getattr(self._inner, name)
        if name not in REPEATED:
            return real(*args, **kwargs)
        return self._handler.execute_with_retry(lambda: real(*args, **kwargs))

    call.__name__, call.__doc__ = name, getattr(Syscalls, name).__doc__
    return call


for _name, _value in vars(Syscalls).items():
    if callable(_value) and not _name.startswith("_") and _name not in vars(RetriedCalls):
        setattr(RetriedCalls, _name, _passed_on(_name))


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
