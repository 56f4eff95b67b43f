"""Plain data: the part of a context that is text and numbers, which may be kept, logged and sent.

Tensors, models and open files stay where they are: a record of a failure must not keep a model in memory, nor copy it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

_MOST_ITEMS, _MOST_TEXT, _MOST_DEPTH = 1000, 10_000, 8


class _NotPlain(Exception):
    """The value is no text, number or small collection of them."""


def plain_data(data: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What of ``data`` can be written as strict JSON, and the keys of what was left out.

    Numbers that JSON has no word for become ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``; arrays of one number become
    that number.

    Example:
        >>> import numpy as np
        >>> plain_data({"step": 3, "loss": np.float32(0.5), "worst": float("nan"), "weights": np.zeros(9)})
        ({'step': 3, 'loss': 0.5, 'worst': 'NaN'}, ('weights',))
    """
    kept: dict[str, Any] = {}
    left_out = []
    budget = _SizeBudget(_MOST_ITEMS)
    for key, value in list(data.items()):  # training may go on and change it
        try:
            kept[str(key)] = _plain(value, budget, 0)
        except Exception:  # noqa: BLE001  # a value of the user's may raise anything when it is looked at
            left_out.append(str(key))
    return kept, tuple(left_out)


def described(error: BaseException) -> str:
    """An error in words, also when it has none for itself.

    Example:
        >>> described(OSError("disk full"))
        'OSError: disk full'
    """
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  # an error of the user's may fail even at this
        return f"{type(error).__name__}: (it cannot be put into words)"


class _SizeBudget:
    """How many values may still be kept."""

    def __init__(self, items: int) -> None:
        self._left = items

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _NotPlain


def _plain(value: Any, budget: _SizeBudget, depth: int) -> Any:
    budget.spend()
    if depth > _MOST_DEPTH:
        raise _NotPlain
    if value is None or isinstance(value, (bool, int, str, float)):
        return _scalar(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each, budget, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each, budget, depth + 1) for each in value]
    return _scalar(_named(value))


def _scalar(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MOST_TEXT:
        raise _NotPlain
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def _named(value: Any) -> Any:
    """Text or a number for the few other types that are one."""
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (PurePath, UUID)):
        return str(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, BaseException):
        return described(value)[:_MOST_TEXT]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        number = value.item()
        if isinstance(number, (bool, int, float, str)):
            return number
    raise _NotPlain
