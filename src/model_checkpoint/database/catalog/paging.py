"""Paging: rows in a fixed order, from where the last page ended; no page costs more than the first."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_

from model_checkpoint.errors import OptionInvalid

MOST = 10_000  # rows of one page


def page_of(statement: Select[Any], order: Sequence[ColumnElement[Any]], *, after: str, limit: int) -> Select[Any]:
    """The statement for one page in descending order, and one row more, which tells whether there is another."""
    if not 1 <= limit <= MOST:
        raise OptionInvalid(f"limit: must be from 1 to {MOST}, got {limit}.")
    if after:
        statement = statement.where(_beyond(order, read_cursor(after, len(order))))
    return statement.order_by(*(column.desc() for column in order)).limit(limit + 1)


def _beyond(order: Sequence[ColumnElement[Any]], values: Sequence[Any]) -> ColumnElement[bool]:
    """Rows after the given one in descending order, written so that every database walks its index."""
    column, value = order[0], values[0]
    if len(order) == 1:
        return and_(column < value)
    return and_(column <= value, or_(column < value, _beyond(order[1:], values[1:])))


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
