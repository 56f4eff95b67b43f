"""Metric series: one series as columns, read from the database; thinned if that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, select

from model_checkpoint.database.models import MetricPointRow, table_of
from model_checkpoint.database.records import Series
from model_checkpoint.database.values.series_columns import fetched_series, joined_series, thinned
from model_checkpoint.errors import OptionInvalid

_LAST_STEP = (1 << 63) - 1
_points = table_of(MetricPointRow).c


def read_series(
    connection: Connection, series: tuple[int, int], *, since: int | None, limit: int | None, buckets: int | None
) -> Series:
    """The points of a series, by step and time."""
    for name, number in (("limit", limit), ("buckets", buckets)):
        if number is not None and number < 1:
            raise OptionInvalid(f"{name}: must be 1 or more, got {number}.")
    steps = None if since is None else (since + 1, _LAST_STEP)
    statement = points_of(series, steps)
    chunks = series_chunks(connection, statement if limit is None else statement.limit(limit))
    if buckets is not None:
        chunks = thinned(chunks, connection.execute(_ends_of(series, steps)).one(), buckets)
    return joined_series(list(chunks))


def points_of(series: tuple[int, int], steps: tuple[int, int] | None) -> Select[Any]:
    """The statement for step, time, grade and value of a series in order; ``steps`` includes both ends."""
    order = (_points.experiment, _points.key, _points.step, _points.at)
    return select(_points.step, _points.at, _points.grade, _points.value).where(*_same(series, steps)).order_by(*order)


def _ends_of(series: tuple[int, int], steps: tuple[int, int] | None) -> Select[Any]:
    return select(func.min(_points.step), func.max(_points.step)).where(*_same(series, steps))


def _same(series: tuple[int, int], steps: tuple[int, int] | None) -> list[ColumnElement[bool]]:
    within = [] if steps is None else [_points.step.between(*steps)]
    return [_points.experiment == series[0], _points.key == series[1], *within]


def series_chunks(connection: Connection, statement: Any) -> Iterator[Series]:
    """What a statement for step, time, grade and value gives, as columns of some thousand points each."""
    return fetched_series(connection.execute(statement).cursor)  # the driver's own: a row is a plain tuple
