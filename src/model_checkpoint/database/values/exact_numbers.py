"""Exact numbers: a float as (grade, finite number), since no two databases agree on NaN and infinity.

SQLite turns NaN into NULL and MySQL refuses both. Ordered by grade and number the pairs have the order of the floats,
NaN after all of them, so an index over both columns finds the least and the greatest.
"""

from __future__ import annotations

import math
import operator
from typing import Any

from model_checkpoint.database.errors import RowRefused

BELOW, FINITE, ABOVE, NOT_A_NUMBER = -1, 0, 1, 2
_WHOLE = 1 << 53  # up to here every integer is a float
LARGEST = 1 << 63  # of 64 bits, and one


def split(value: float) -> tuple[int, float]:
    """The pair of a float; minus zero becomes zero.

    Example:
        >>> split(0.5), split(float("-inf")), split(float("nan"))
        ((0, 0.5), (-1, 0.0), (2, 0.0))
    """
    if math.isfinite(value):
        return FINITE, value + 0.0
    if math.isnan(value):
        return NOT_A_NUMBER, 0.0
    return (ABOVE if value > 0 else BELOW), 0.0


_ODD = {BELOW: -math.inf, ABOVE: math.inf, NOT_A_NUMBER: math.nan}


def joined(grade: int, value: float) -> float:
    """The float of a pair.

    Example:
        >>> joined(0, 0.5), joined(1, 0.0)
        (0.5, inf)
    """
    return value if grade == FINITE else _ODD[grade]


def as_float(value: Any, where: str) -> float:
    """A number as the float it equals; arrays of one element count as numbers.

    Example:
        >>> as_float(3, "loss")
        3.0
    """
    if value.__class__ is float:
        return value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise RowRefused(
            f"{where}: must be a number, got {type(value).__qualname__}. Convert it with float()."
        ) from error
    if isinstance(value, str):
        raise RowRefused(f"{where}: must be a number, got the text {value!r}. Convert it with float().")
    if isinstance(value, int) and abs(value) > _WHOLE and int(number) != value:
        raise RowRefused(f"{where}: {value} has no exact float. Round it, or keep it in metadata.")
    return number


def as_whole(value: Any, where: str) -> int:
    """An integer that fits 64 bits; a float is none, however round.

    Example:
        >>> as_whole(7, "step")
        7
    """
    try:
        number = operator.index(value)
    except TypeError as error:
        raise RowRefused(f"{where}: must be a whole number, got {value!r}.") from error
    if not -LARGEST <= number < LARGEST:
        raise RowRefused(f"{where}: {number} does not fit 64 bits.")
    return number
