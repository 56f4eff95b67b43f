"""Budget: turn what a person writes ("2GB", 0.5, 1_000_000) into bytes."""

from __future__ import annotations

import re

from model_checkpoint.options import BYTE_UNITS

_TEXT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]+)\s*")


def parse_budget(budget: str | float | int, *, plain_peak: int) -> int:
    """Return the budget in bytes; a float in (0, 1] is a fraction of ``plain_peak``.

    Example:
        >>> parse_budget("2GB", plain_peak=0), parse_budget("2GiB", plain_peak=0), parse_budget(0.5, plain_peak=800)
        (2000000000, 2147483648, 400)
    """
    if isinstance(budget, bool) or not isinstance(budget, (str, float, int)):
        raise TypeError(f"memory_budget: got {type(budget).__name__}, expected bytes, a fraction or text like '2GB'.")
    if isinstance(budget, str):
        return _parse_text(budget)
    if isinstance(budget, float):
        if not 0.0 < budget <= 1.0:
            raise ValueError(f"memory_budget: a float is a fraction in (0, 1], got {budget}. Give bytes as an int.")
        return int(plain_peak * budget)
    if budget <= 0:
        raise ValueError(f"memory_budget: got {budget} bytes, expected more than 0.")
    return budget


def _parse_text(text: str) -> int:
    """Read ``<number><unit>``; GB is 10^9 and GiB is 2^30."""
    match = _TEXT.fullmatch(text)
    if match is None or match[2].lower() not in BYTE_UNITS:
        raise ValueError(f"memory_budget: cannot read {text!r}, expected e.g. '2GB' (10^9) or '1.5GiB' (2^30).")
    size = int(float(match[1]) * BYTE_UNITS[match[2].lower()])
    if size <= 0:
        raise ValueError(f"memory_budget: {text!r} is no bytes at all.")
    return size
