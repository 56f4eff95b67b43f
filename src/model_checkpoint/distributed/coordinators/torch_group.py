"""Torch group: the store of a torch.distributed process group carries the messages; no collective is ever called.

A collective beside a dead rank leaves the group unusable, and names nobody. The store of the group outlives both, but
its calls ignore their timeouts while its host is stopped, so each runs where it can be left behind.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from model_checkpoint import forks
from model_checkpoint.coordination import PATIENCE, Exchange
from model_checkpoint.distributed.coordinators.bounded import BoundedCalls, NoAnswer, pause
from model_checkpoint.distributed.coordinators.ranked import RankedCoordinator
from model_checkpoint.errors import OptionInvalid

T = TypeVar("T")

_CALL_SECONDS = 5.0  # what a living host answers within, however busy
_KEPT_CALLS = 8  # whose keys stay: several saves may be under way at once, and a rank may still be about to read


class TorchCoordinator(RankedCoordinator):
    """The ranks of a process group (default: all), whatever its backend; the group itself is left alone.

    With ``exchange=True`` what all ranks load is read by one of them and sent to the others, through a gloo group of
    our own: for media that are slower than the network between the ranks.

    Example:
        >>> import model_checkpoint as mc
        >>> from model_checkpoint.distributed import TorchCoordinator
        >>> def checkpoint(state, step):  # on every rank, after torch.distributed.init_process_group
        ...     return mc.save("/shared/run", state, step=step, coordinator=TorchCoordinator())
    """

    def __init__(self, group: Any = None, *, patience: float = PATIENCE, exchange: bool = False) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise OptionInvalid(
                "TorchCoordinator: there is no process group. Call torch.distributed.init_process_group first, or "
                "leave coordinator= out in a program of one process."
            )
        self._group = cast("Any", dist.group.WORLD if group is None else group)
        super().__init__(dist.get_rank(self._group), dist.get_world_size(self._group), patience)
        if self._rank < 0:
            raise OptionInvalid("TorchCoordinator: this process is not of that group. Save where it is.")
        self._seconds = min(_CALL_SECONDS, patience / 2)
        self._look_seconds = min(_CALL_SECONDS, patience / 8)  # one look after the other adds up to the patience
        store: Any = self._group.get_group_store()
        self.scope = self._group
        self.program_ranks: Sequence[int] = dist.get_process_group_ranks(self._group)
        births = f"born/{self._rank}"
        self._lines = {"talk": _Line(store, self._group, births), "beat": _Line(store, self._group, births)}
        self._put: OrderedDict[str, set[str]] = OrderedDict()
        self._tidying = forks.lock()
        self.exchange: Exchange | None = self._send_around if exchange else None

    def put(self, key: str, value: bytes) -> None:
        """Set a key of the group's store; if the host does not take it, the others will notice our silence."""
        line = self._lines["beat" if "/beat/" in key else "talk"]
        for _ in range(2):  # a connection that hangs is left behind, and the word is said once more on another
            try:
                line.run(lambda store: store.set(key, value), self._seconds)
                self._tidy(key, line)
                return
            except NoAnswer:
                continue
            except RuntimeError:  # what c10d raises; DistError is one
                return

    def _tidy(self, key: str, line: _Line) -> None:
        """Forget the keys of earlier calls, so that the store does not grow with every save."""
        with self._tidying:
            keys = self._put.setdefault(key.rsplit("/", 2)[0], set())
            keys.add(key)
            self._put.move_to_end(key.rsplit("/", 2)[0])
            old = [self._put.popitem(last=False)[1] for _ in range(len(self._put) - _KEPT_CALLS)]
        if old:
            line.run(lambda store: [store.delete_key(one) for some in old for one in some], self._seconds)

    def collect(self, keys: Sequence[str], until: float) -> dict[str, bytes]:
        """Read keys of the group's store until all are there."""
        line = self._lines["beat" if keys and "/beat/" in keys[0] else "talk"]
        found: dict[str, bytes] = {}
        end, nap = max(until, time.monotonic()) + self._look_seconds, 0.0005
        try:
            while True:
                left = [key for key in keys if key not in found]
                found |= line.run(partial(_read, keys=left), end - time.monotonic())
                if len(found) == len(keys) or time.monotonic() >= until:
                    return found
                nap = pause(nap, until, self._world_size)
        except (NoAnswer, RuntimeError):
            pause(min(1.0, max(0.0, until - time.monotonic())), until)  # a dead host answers at once: ask it less often
            return found

    def _send_around(self, buffers: Sequence[memoryview]) -> None:
        """Fill the buffers of all other ranks; a rank that is gone fails it well before the patience is over."""
        calls = _exchange_calls(self._group)
        calls.run(partial(_broadcast_all, self._group, self._patience / 2, buffers), seconds=self._patience / 2)


_exchanging: WeakKeyDictionary[Any, tuple[BoundedCalls, list[Any]]] = WeakKeyDictionary()


def _exchange_calls(group: Any) -> BoundedCalls:
    with _counting:
        return _exchanging.setdefault(group, (BoundedCalls("exchange"), []))[0]


def _broadcast_all(group: Any, seconds: float, buffers: Sequence[memoryview]) -> None:
    ranks, made = dist.get_process_group_ranks(group), _exchanging[group][1]
    timeout = timedelta(seconds=seconds)
    if not made:  # a collective beside a dead rank spoils a group for good, so it is never the program's
        made.append(dist.new_group(ranks, timeout, "gloo", use_local_synchronization=True))
    under_way = [
        dist.broadcast(torch.frombuffer(buffer, dtype=torch.uint8), rank, group=made[0], async_op=True)
        for rank, buffer in zip(ranks, buffers, strict=True)
        if len(buffer)
    ]
    for one in under_way:
        one.wait(timeout)


def _read(store: Any, keys: Sequence[str]) -> dict[str, bytes]:
    there = keys if store.check(list(keys)) else [key for key in keys if len(keys) > 1 and store.check([key])]
    return dict(zip(there, store.multi_get(list(there)), strict=True)) if there else {}


_births: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_counting = forks.lock()


def _birth(store: Any, group: Any, key: str) -> int:
    """Which group of this process over this store it is: one made anew must not find words of the one before."""
    with _counting:
        if group not in _births:
            _births[group] = store.add(key, 1)
        return _births[group]


class _Line:
    """One connection of our own to the store: two users of one connection wait for each other."""

    def __init__(self, store: Any, group: Any, births: str) -> None:
        self._base, self._group, self._births = store, group, births
        self._store: Any = None
        self._calls = BoundedCalls("store")

    def run(self, call: Callable[[Any], T], seconds: float) -> T:
        def connected() -> T:
            if self._store is None:
                mine = PrefixStore("model_checkpoint", _cloned(self._base))
                mine.set_timeout(timedelta(seconds=_CALL_SECONDS))
                self._store = PrefixStore(str(_birth(mine, self._group, self._births)), mine)
            return call(self._store)

        try:
            return self._calls.run(connected, seconds=seconds)
        except NoAnswer:
            self._store = None  # its connection hangs with the call that was left behind
            raise


def _cloned(store: Any) -> Any:
    try:
        return store.clone()
    except (RuntimeError, NotImplementedError, AttributeError):  # a HashStore or FileStore needs no second connection
        return store
