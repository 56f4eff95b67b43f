"""Paging: rows in a fixed order, from where the last page ended; no page costs more than the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_

from model_checkpoint.database.values.cursors import MOST, read_cursor
from model_checkpoint.errors import OptionInvalid


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
