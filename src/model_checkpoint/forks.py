"""Forks: what a forked child must find fresh, in one registry.

Only the thread that forks lives on in the child. A lock that another one held is never released there, and a pool has
no threads; whoever keeps either for longer than a call makes the lock here, and says here how to begin anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakMethod, WeakSet

_locks: WeakSet[Any] = WeakSet()
_resets: list[Callable[[], Callable[[], object] | None]] = []


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
    if hasattr(reset, "__self__"):
        _resets.append(WeakMethod(reset))
    else:
        _resets.append(lambda: reset)


def _begin_anew() -> None:
    for each in list(_locks):
        each._at_fork_reinit()
    for reference in list(_resets):
        reset = reference()
        if reset is None:
            _resets.remove(reference)
        else:
            reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
