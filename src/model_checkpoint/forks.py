"""Forks: what a forked child must find fresh, in one registry.

Only the thread that forks lives on in the child. A lock that another one held is never released there, and a pool has
no threads; whoever keeps either for longer than a call makes the lock here, and says here how to begin anew. What a
library leaves in an unusable state when it is cut in two is kept whole here: a fork waits until it is over.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakMethod, WeakSet

_locks: WeakSet[Any] = WeakSet()
_resets: list[Callable[[], Callable[[], object] | None]] = []
_MOST_SECONDS = 10.0  # a fork waits for; then it takes place all the same


class _Whole:
    """Who is in the middle of something, by thread, and whether a fork waits for the last of them."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.inside: dict[int, int] = {}
        self.forking = 0


_whole = _Whole()


def lock() -> threading.Lock:
    """A lock that is free in a forked child, whoever held it in the parent.

    Example:
        >>> import os
        >>> guard = lock()
        >>> with guard:
        ...     child = os.fork()
        ...     if child == 0:
        ...         os._exit(0 if guard.acquire(blocking=False) else 1)
        >>> os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        0
    """
    fresh = threading.Lock()
    _locks.add(fresh)
    return fresh


def rlock() -> threading.RLock:
    """Such a lock, which the thread that holds it may take again.

    Example:
        >>> guard = rlock()
        >>> with guard, guard:
        ...     pass
    """
    fresh = threading.RLock()
    _locks.add(fresh)
    return fresh


def condition() -> threading.Condition:
    """A condition on such a lock; nobody waits for it in a forked child.

    Example:
        >>> with condition() as changed:
        ...     changed
        True
    """
    fresh = threading.Condition()
    _locks.add(fresh)
    return fresh


def in_child(reset: Callable[[], object]) -> None:
    """Call ``reset`` in every child forked from now on, when all locks are free; a method, as long as its object lives.

    Example:
        >>> in_child(lambda: None)
    """
    _resets[:] = [one for one in _resets if one() is not None]
    if hasattr(reset, "__self__"):
        _resets.append(WeakMethod(reset))
    else:
        _resets.append(lambda: reset)


@contextmanager
def kept_whole() -> Iterator[None]:
    """While inside, no other thread forks: it waits for a moment, at most ten seconds. Keep it short.

    Example:
        >>> with kept_whole():
        ...     pass
    """
    me, whole = threading.get_ident(), _whole
    with whole.changed:
        # whoever is inside already goes on, else the fork and it would wait for each other
        if whole.forking:
            whole.changed.wait_for(lambda: not whole.forking or me in whole.inside, _MOST_SECONDS)
        whole.inside[me] = whole.inside.get(me, 0) + 1
    try:
        yield
    finally:
        with whole.changed:
            whole.inside[me] -= 1
            if not whole.inside[me]:
                del whole.inside[me]
            whole.changed.notify_all()


def _before_fork() -> None:
    me = threading.get_ident()
    with _whole.changed:
        _whole.forking += 1
        _whole.changed.wait_for(lambda: not any(one != me for one in _whole.inside), _MOST_SECONDS)


def _after_fork() -> None:
    with _whole.changed:
        _whole.forking -= 1
        _whole.changed.notify_all()


def _begin_anew() -> None:
    global _whole
    _whole = _Whole()
    for each in list(_locks):
        each._at_fork_reinit()
    for reference in list(_resets):
        reset = reference()
        if reset is not None:
            reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_begin_anew)
