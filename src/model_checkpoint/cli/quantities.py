"""Quantities: sizes, times and numbers as a person reads them."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Any

_RECENT = 300 * 86_400  # seconds; a day without its year can mean no other
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60))


def duration(seconds: float) -> str:
    """Seconds as a person reads them, rounded up.

    Example:
        >>> duration(86_399.5), duration(3_700), duration(61), duration(0.2), duration(200_000)
        ('24 hours', '2 hours', '2 minutes', '1 second', '3 days')
    """
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds > length), ("second", 1))
    count = max(1, math.ceil(seconds / length))
    return f"{count} {unit}{'s' if count > 1 else ''}"


def ago(moment: float, now: float | None = None) -> str:
    """How long ago a moment was; a clock that goes ahead is told as such.

    Example:
        >>> ago(1000.0, now=1061.0), ago(1000.0, now=900.0)
        ('2 minutes ago', 'in 2 minutes, by its clock')
    """
    gap = (time.time() if now is None else now) - moment
    return f"{duration(gap)} ago" if gap >= 0 else f"in {duration(-gap)}, by its clock"


def size(nbytes: float) -> str:
    """Bytes as a person reads them.

    Example:
        >>> size(1_500_000_000), size(12)
        ('1.50 GB', '12 B')
    """
    value = float(nbytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1000
    return f"{value:.2f} TB"


def number(value: Any) -> str:
    """A metric's value, short.

    Example:
        >>> number(0.123456789), number(None), number("nan"), number(3)
        ('0.12346', '', 'nan', '3')
    """
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def short(value: float | None) -> str:
    """A number in a narrow column.

    Example:
        >>> short(0.0123456), short(None), short(1e-9)
        ('0.0123', '-', '1e-09')
    """
    return "-" if value is None else f"{value:.3g}"


def day_and_time(at: datetime | float | None, now: float | None = None) -> str:
    """A moment in UTC in few columns: of this year without the year, of another without the time.

    Example:
        >>> day_and_time(1_000_000.0, now=2_000_000.0), day_and_time(1_000_000.0, now=1e9), day_and_time(None)
        ('01-12 13:46', '1970-01-12', '-')
    """
    if at is None:
        return "-"
    seconds = at.timestamp() if isinstance(at, datetime) else at
    recent = abs((time.time() if now is None else now) - seconds) < _RECENT
    return moment(at)[5:] if recent else moment(at)[:10]


def moment(at: datetime | float | None, *, seconds: bool = False) -> str:
    """A moment in UTC.

    Example:
        >>> moment(0.0), moment(None)
        ('1970-01-01 00:00', '-')
    """
    if at is None:
        return "-"
    try:
        when = at if isinstance(at, datetime) else datetime.fromtimestamp(at, UTC)
    except (OverflowError, OSError, ValueError):
        return "?"
    return when.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def counted(count: int, word: str) -> str:
    """A number and what it is of.

    Example:
        >>> counted(1, "checkpoint"), counted(1200, "checkpoint")
        ('1 checkpoint', '1,200 checkpoints')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"
