"""Callback states: what the callbacks of a user have come to know.

How long early stopping has waited, the best it has seen, the history so far: Keras keeps none of it. Of every callback
the plain values are kept that changed since the fit began; what the user chose is his to choose again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from model_checkpoint.errors import StructureMismatch

_PLAIN = (type(None), bool, int, float, str, bytes, np.ndarray, np.generic)
_NOT_THEIRS = ("params",)  # what Keras tells them of the fit


class CallbackStates:
    """The callbacks of one fit.

    Example:
        >>> class Counting:
        ...     seen = 0
        >>> one = Counting()
        >>> states = CallbackStates([one])
        >>> one.seen = 3
        >>> states.state_dict()
        [{'class': 'Counting', 'changed': {'seen': 3}}]
    """

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self._callbacks = list(callbacks)
        self._before = [_plain(one) for one in self._callbacks]
        self._kept: list[set[str]] = [set() for _ in self._callbacks]

    def state_dict(self) -> list[dict[str, Any]]:
        """What changed since the fit began, or was changed before a resume."""
        return [self._state(*one) for one in zip(self._callbacks, self._before, self._kept, strict=True)]

    def _state(self, one: Any, before: Mapping[str, Any], kept: set[str]) -> dict[str, Any]:
        now = _plain(one)
        changed = {name: now[name] for name in now if name in kept or not _same(now[name], before.get(name, _NOTHING))}
        return {"class": type(one).__name__, "changed": deepcopy(changed)}

    def load_state_dict(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Let them know what they knew."""
        saved, now = [one["class"] for one in states], [type(one).__name__ for one in self._callbacks]
        if saved != now:
            raise StructureMismatch(
                f"callbacks: the run was saved with {saved}, now there are {now}, so what they had come to know cannot "
                "be given back. Pass the same ones in the same order, or give the run another root."
            )
        for one, state, kept in zip(self._callbacks, states, self._kept, strict=True):
            vars(one).update(deepcopy(dict(state["changed"])))
            kept |= set(state["changed"])


_NOTHING = object()


def _plain(one: Any) -> dict[str, Any]:
    kept = {name: value for name, value in vars(one).items() if name not in _NOT_THEIRS and _is_plain(value)}
    return deepcopy(kept)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return type(value) in (list, tuple) and all(map(_is_plain, value))
    if isinstance(value, dict):
        return (
            type(value) is dict and all(isinstance(key, str) for key in value) and all(map(_is_plain, value.values()))
        )
    return isinstance(value, _PLAIN)


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and np.array_equal(left, right)
    if isinstance(left, (list, tuple)) and type(left) is type(right):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    return type(left) is type(right) and bool(left == right)
