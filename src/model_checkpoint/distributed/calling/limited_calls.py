"""Limited calls: the system calls of a local store for one call with a limit.

What would make a checkpoint visible is not done once the time is over, however long the call before it has hung; what
clears up always is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.storage.contract.names import MANIFEST
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls


class LimitedCalls(Syscalls):
    """The system calls of a store, of which those that publish look at the clock."""

    def __init__(self, inner: Syscalls, limit: CallLimit) -> None:
        super().__init__()
        self._inner, self._limit = inner, limit
        self.without_direct, self.listed, self.flushed_roots = inner.without_direct, inner.listed, inner.flushed_roots

    def rename(self, source: str, target: str, *, out_of: int | None = None, into: int | None = None) -> None:
        """Rename; a stage or a manifest to where readers see it only in time."""
        if ("/.staging/" in source and "/checkpoints/" in target) or (target == MANIFEST and into is not None):
            self._limit.check()
        self._inner.rename(source, target, out_of=out_of, into=into)

    def exchange(self, one: str, other: str) -> None:
        """Let two names change places, in time."""
        self._limit.check()
        self._inner.exchange(one, other)


def _passed_on(name: str) -> Callable[..., Any]:
    def call(self: LimitedCalls, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._inner, name)(*args, **kwargs)

    call.__name__, call.__doc__ = name, getattr(Syscalls, name).__doc__
    return call


for _name, _value in vars(Syscalls).items():
    if callable(_value) and not _name.startswith("_") and _name not in vars(LimitedCalls):
        setattr(LimitedCalls, _name, _passed_on(_name))


def limited(store: Store, limit: CallLimit) -> Store:
    """The same store, which publishes nothing once the time is over; a bucket has limits of its own for each request.

    Example:
        >>> from model_checkpoint.storage import open_store
        >>> limited(open_store("runs/a"), CallLimit("the save", seconds=5)).url.endswith("runs/a")
        True
    """
    return store.with_calls(lambda calls: LimitedCalls(calls, limit)) if isinstance(store, LocalStore) else store
