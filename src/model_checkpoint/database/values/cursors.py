"""Cursors: what a list is ordered by, and where a page of it ended, as one word that says so of its last row."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
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


def sort_word(sort: str, words: Iterable[str]) -> tuple[str, bool]:
    """Which of ``words`` a list is sorted by, and whether it falls, as it does behind a minus.

    Example:
        >>> sort_word("-step", ["at", "step"])
        ('step', True)
    """
    word, known = sort.removeprefix("-"), list(words)
    if word not in known:
        raise OptionInvalid(f"sort: must be one of {', '.join(known)}, or one of them with a minus, got {sort!r}.")
    return word, sort.startswith("-")
