"""Cursors: where a page ended, as one word that says what its last row was ordered by."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from model_checkpoint.errors import OptionInvalid

MOST = 10_000  # rows of one page


def cursor_of(values: Sequence[Any]) -> str:
    """A cursor that names a row by what it is ordered by.

    Example:
        >>> read_cursor(cursor_of([7, 0.5, "c1"]), 3)
        [7, 0.5, 'c1']
    """
    return base64.urlsafe_b64encode(json.dumps(list(values)).encode()).decode().rstrip("=")


def read_cursor(cursor: str, length: int) -> list[Any]:
    """What a cursor says."""
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError):
        values = None
    plain = isinstance(values, list) and all(isinstance(one, (str, int, float)) for one in values)
    if not plain or len(values) != length:
        raise OptionInvalid(f"after: {cursor[:40]!r} is no cursor of this list. Take it from the page before.")
    return list(values)
