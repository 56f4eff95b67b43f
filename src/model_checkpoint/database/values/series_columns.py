"""Series columns: rows of points as columns; thinned where there are more than a chart can show, extremes kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, nan
from typing import TYPE_CHECKING, Any

from model_checkpoint.database.summed_records import Series
from model_checkpoint.database.values.exact_numbers import ABOVE, BELOW, NOT_A_NUMBER

if TYPE_CHECKING:  # most that is asked of a catalog has no arrays, and does without
    import numpy as np
    from numpy.typing import NDArray

_CHUNK = 20_000  # points that are thinned at a time
_ODD = ((BELOW, -inf), (ABOVE, inf), (NOT_A_NUMBER, nan))


def fetched_series(cursor: Any) -> Iterator[Series]:
    """What a driver's cursor gives of step, time, grade and value, as columns of some thousand points each."""
    while rows := cursor.fetchmany(_CHUNK):
        yield _columns(rows)


def _columns(rows: Sequence[tuple[Any, ...]]) -> Series:
    import numpy as np

    steps, moments, grades, numbers = zip(*rows, strict=True)
    values = np.array(numbers, dtype=np.float64)
    if any(grades):
        kinds = np.array(grades)
        for grade, number in _ODD:
            values[kinds == grade] = number
    return Series(np.array(steps, dtype=np.int64), np.array(moments, dtype=np.float64), values)


def thinned(chunks: Iterator[Series], ends: Any, buckets: int) -> Iterator[Series]:
    """Of each bucket the least, the greatest and the first that is not finite; chunks in order, seen one at a time."""
    kept = joined_series([])
    for chunk in chunks:
        both = joined_series([kept, chunk])
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


def joined_series(parts: list[Series]) -> Series:
    """Columns one behind the other."""
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    return Series(
        np.concatenate([np.empty(0, np.int64), *(part.steps for part in parts)]),
        np.concatenate([np.empty(0, np.float64), *(part.timestamps for part in parts)]),
        np.concatenate([np.empty(0, np.float64), *(part.values for part in parts)]),
    )
