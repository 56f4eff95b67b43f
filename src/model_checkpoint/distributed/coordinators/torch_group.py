"""Torch group: the store of a torch.distributed process group carries the messages; no collective is ever called.

A collective beside a dead rank leaves the group unusable, and names nobody. The store of the group outlives both, but
its calls ignore their timeouts while its host is stopped, so each runs where it can be left behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from model_checkpoint.distributed.coordinators.kept_words import KeptWords
from model_checkpoint.distributed.coordinators.ranked import RankedCoordinator
from model_checkpoint.errors import OptionInvalid

T = TypeVar("T")

_CALL_SECONDS = 5.0  # what a living host answers within, however busy
_NAP = 0.0005  # seconds between the first two looks
_CONNECT_SECONDS = 30.0  # for both connections of a group, which are there before anybody's silence is counted


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
        self.scope = self._group
        self.program_ranks: Sequence[int] = dist.get_process_group_ranks(self._group)
        self._post = _post_of(self._group, self._rank)
        self._post.connect()
        self.exchange: Exchange | None = self._send_around if exchange else None

    def put(self, key: str, value: bytes) -> None:
        """Set a key of the group's store; if the host does not take it, the others will notice our silence."""
        line = self._post.line_of(key)
        for _ in range(2):  # a connection that hangs is left behind, and the word is said once more on another
            try:
                line.run(lambda store: store.set(key, value), self._seconds)
                self._forget(self._post.kept.note(key), line)
                return
            except NoAnswer:
                continue
            except RuntimeError:  # what c10d raises; DistError is one
                return

    def _forget(self, old: Mapping[str, set[str]], line: _Line) -> None:
        """Remove the keys of earlier calls, so that the store does not grow with every save."""
        keys = [key for some in old.values() for key in some]
        if keys:
            line.run(lambda store: [store.delete_key(key) for key in keys], self._seconds)

    def collect(self, keys: Sequence[str], until: float) -> dict[str, bytes]:
        """Read keys of the group's store until all are there."""
        line, world = self._post.line_of(keys[0] if keys else ""), self._world_size
        end, nap = max(until, time.monotonic()) + self._look_seconds, _NAP
        try:
            while True:
                found = line.run(lambda store: _awaited(store, keys, until, world, line), end - time.monotonic())
                if found is not None:
                    return found
                nap = pause(nap, until, world)  # others use the line meanwhile
        except (NoAnswer, RuntimeError):
            pause(min(1.0, max(0.0, until - time.monotonic())), until)  # a dead host answers at once: ask it less often
            return {}

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


def _awaited(store: Any, keys: Sequence[str], until: float, world_size: int, line: _Line) -> dict[str, bytes] | None:
    """What there is of ``keys`` when all are there, or at ``until``; None as soon as others want the line.

    Before that only the first that is missing is asked for: all are there no sooner than it is, and to look for each
    takes as many round trips as there are ranks, every time.
    """
    there, left, nap = list[str](), list(keys), _NAP
    while left:
        if store.check(left[:1]):
            some = 1 if len(left) > 1 and not store.check(left) else len(left)
            there, left = there + left[:some], left[some:]
        elif time.monotonic() >= until:
            there += [key for key in left[1:] if store.check([key])]
            break
        elif line.wanted:
            return None
        else:
            nap = pause(nap, until, world_size)
    return dict(zip(there, store.multi_get(there), strict=True)) if there else {}


class _GroupPost:
    """What all coordinators of a group have in common: two connections to its store, and the words that are there."""

    def __init__(self, store: Any, rank: int) -> None:
        self._base, self._rank = store, rank
        self._birth, self._counting = 0, forks.lock()
        self._lines = {"talk": _Line(self._connected), "beat": _Line(self._connected)}
        self.kept = KeptWords()

    def line_of(self, key: str) -> _Line:
        """The connection that a word goes through: a sign of life never waits behind another word."""
        return self._lines["beat" if "/beat/" in key else "talk"]

    def connect(self) -> None:
        """Connect now, where that may take its time; what does not answer yet is asked again by the first word."""
        end = time.monotonic() + _CONNECT_SECONDS
        with suppress(NoAnswer, RuntimeError):
            for line in self._lines.values():
                line.run(lambda _: None, end - time.monotonic())

    def _connected(self) -> Any:
        """A connection of its own, to words of this group alone: one made anew must not find those of one before."""
        mine = PrefixStore("model_checkpoint", _cloned(self._base))
        with self._counting:
            theirs = self._base.timeout
            mine.set_timeout(timedelta(seconds=_CALL_SECONDS))
            self._base.set_timeout(theirs)  # a HashStore is its own clone: the program waits for it as long as before
            self._birth = self._birth or mine.add(f"born/{self._rank}", 1)
        return PrefixStore(str(self._birth), mine)


_posts: WeakKeyDictionary[Any, _GroupPost] = WeakKeyDictionary()
_counting = forks.lock()


def _post_of(group: Any, rank: int) -> _GroupPost:
    with _counting:
        if group not in _posts:
            _posts[group] = _GroupPost(group.get_group_store(), rank)
        return _posts[group]


class _Line:
    """One connection to the store: two users of one connection wait for each other."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._store: Any = None
        self._calls = BoundedCalls("store")

    @property
    def wanted(self) -> bool:
        """Whether a call waits for the one under way, which should not go on for long then."""
        return self._calls.wanted

    def run(self, call: Callable[[Any], T], seconds: float) -> T:
        def connected() -> T:
            if self._store is None:
                self._store = self._connect()
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
