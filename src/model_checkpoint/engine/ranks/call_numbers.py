"""Call numbers: the calls that all ranks make together are counted, so that their words are never mixed up."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any
from weakref import WeakKeyDictionary

from model_checkpoint import forks
from model_checkpoint.coordination import Coordinator

_guard = forks.lock()
_weakly: WeakKeyDictionary[object, int] = WeakKeyDictionary()
_by_value: dict[Hashable, int] = {}


def call_number(coordinator: Coordinator) -> int:
    """Count one more call that all ranks make together, from 1.

    Two coordinators of the same ranks count together if they have the same ``scope``.

    Example:
        >>> class One:
        ...     rank, world_size = 0, 1
        >>> one = One()
        >>> call_number(one), call_number(one)
        (1, 2)
    """
    scope: Any = getattr(coordinator, "scope", coordinator)
    with _guard:
        try:
            number = _weakly[scope] = _weakly.get(scope, 0) + 1
        except TypeError:  # no weak reference to it can be had
            number = _by_value[scope] = _by_value.get(scope, 0) + 1
    return number
