"""Plain values: numbers and settings as JSON can say them. JSON has no NaN and no infinity; those are words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

Number = float | Literal["NaN", "Infinity", "-Infinity"] | None
_MOST_DEPTH, _MOST_TEXT = 20, 10_000


def number_of(value: float | None) -> Number:
    """A number, or the word for what is none.

    Example:
        >>> number_of(0.5), number_of(float("nan")), number_of(float("-inf")), number_of(None)
        (0.5, 'NaN', '-Infinity', None)
    """
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def plain_of(value: Any, depth: int = 0) -> Any:
    """Anything as JSON can say it; what it has no word for is told as text.

    Example:
        >>> plain_of({"lr": 0.1, "betas": (0.9, float("inf")), 3: None})
        {'lr': 0.1, 'betas': [0.9, 'Infinity'], '3': None}
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return number_of(value)
    if isinstance(value, str) or depth >= _MOST_DEPTH:
        return str(value)[:_MOST_TEXT]
    if isinstance(value, Mapping):
        return {str(key): plain_of(one, depth + 1) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_of(one, depth + 1) for one in value]
    return str(value)[:_MOST_TEXT]
