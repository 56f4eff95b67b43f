"""Metric series: one series as columns; thinned where there is more than a chart can show, never losing an extreme."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Select, func, select

from model_checkpoint.database.models import MetricPointRow, table_of
from model_checkpoint.database.records import Series
from model_checkpoint.database.values.exact_numbers import ABOVE, BELOW, NOT_A_NUMBER
from model_checkpoint.errors import OptionInvalid

if TYPE_CHECKING:  # most that is asked of a catalog has no arrays, and does without
    import numpy as np
    from numpy.typing import NDArray

_CHUNK = 20_000  # points that are thinned at a time
_LAST_STEP = (1 << 63) - 1
_points = table_of(MetricPointRow).c
_ODD = ((BELOW, -inf), (ABOVE, inf), (NOT_A_NUMBER, nan))


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
        chunks = _thinned(chunks, connection.execute(_ends_of(series, steps)).one(), buckets)
    return _joined(list(chunks))


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
    import numpy as np

    cursor: Any = connection.execute(statement).cursor  # the driver's own: a row is a plain tuple
    while rows := cursor.fetchmany(_CHUNK):
        steps, moments, grades, numbers = zip(*rows, strict=True)
        values = np.array(numbers, dtype=np.float64)
        if any(grades):
            kinds = np.array(grades)
            for grade, number in _ODD:
                values[kinds == grade] = number
        yield Series(np.array(steps, dtype=np.int64), np.array(moments, dtype=np.float64), values)


def _thinned(chunks: Iterator[Series], ends: Any, buckets: int) -> Iterator[Series]:
    """Of each bucket the least, the greatest and the first that is not finite; chunks in order, seen one at a time."""
    kept = _joined([])
    for chunk in chunks:
        both = _joined([kept, chunk])
        kept = _picked(both, _bucket_of(both.steps, ends, buckets))
    yield kept


def _bucket_of(steps: NDArray[np.int64], ends: Any, buckets: int) -> NDArray[np.int64]:
    low, high = int(ends[0]), int(ends[1])
    width = (high - low) // buckets + 1
    return (steps - low) // width


def _picked(series: Series, bucket: NDArray[np.int64]) -> Series:
    import numpy as np

    finite = np.isfinite(series.values)
    order = np.lexsort((series.values, ~finite, bucket))  # by bucket; finite ones first, by value
    at = bucket[order]
    starts = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
    counts = np.add.reduceat(finite[order].astype(np.int64), starts)
    have = counts > 0
    low, high = order[starts[have]], order[(starts + counts - 1)[have]]
    odd = np.flatnonzero(~finite)
    _, first = np.unique(bucket[odd], return_index=True)
    chosen = np.unique(np.concatenate([low, high, odd[first]]))
    return Series(series.steps[chosen], series.timestamps[chosen], series.values[chosen])


def _joined(parts: list[Series]) -> Series:
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    return Series(
        np.concatenate([np.empty(0, np.int64), *(part.steps for part in parts)]),
        np.concatenate([np.empty(0, np.float64), *(part.timestamps for part in parts)]),
        np.concatenate([np.empty(0, np.float64), *(part.values for part in parts)]),
    )
