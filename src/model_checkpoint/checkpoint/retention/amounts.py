"""Amounts: ages and sizes as people write them: ``"7d"``, ``"90 min"``, ``"50 GB"``, ``"1.5 TiB"``."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.options import BYTE_UNITS

Age = float | timedelta | str
Size = int | str

_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def as_seconds(age: Age) -> float:
    """An age in seconds; a number is one already.

    Example:
        >>> as_seconds("7d"), as_seconds("90 min"), as_seconds(timedelta(hours=1))
        (604800.0, 5400.0, 3600.0)
    """
    if isinstance(age, timedelta):
        return _positive(age.total_seconds(), age)
    if isinstance(age, str):
        return _positive(_amount(age, _SECONDS, "90s, 15min, 12h, 7d or 2w"), age)
    return _positive(age, age)


def as_bytes(size: Size) -> int:
    """A size in bytes; a number is one already.

    Example:
        >>> as_bytes("50 GB"), as_bytes("1.5 GiB"), as_bytes(1000)
        (50000000000, 1610612736, 1000)
    """
    return int(_positive(_amount(size, BYTE_UNITS, "500MB, 50GB or 1.5TiB") if isinstance(size, str) else size, size))


def _amount(text: str, units: dict[str, int], examples: str) -> float:
    match = _AMOUNT.fullmatch(text)
    if match is None or match[2].lower() not in units:
        raise OptionInvalid(f"{text!r} is no amount; write {examples}.")
    return float(match[1]) * units[match[2].lower()]


def _positive(number: float, given: object) -> float:
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number) or number < 0:
        raise OptionInvalid(f"an age or size is a number of 0 or more, or a text with a unit, got {given!r}.")
    return number
