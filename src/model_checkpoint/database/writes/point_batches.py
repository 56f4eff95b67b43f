"""Point batches: points of many series put down at once, each once, and the summaries brought along.

Whoever adds points to a series holds the lock of its summary, taken in one order by everybody. Points newer than all
that are there are known to be new without looking; for others the stretch they fall into is read first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from model_checkpoint.database.errors import RowRefused
from model_checkpoint.database.records import Metric
from model_checkpoint.database.table_rows import TableRows
from model_checkpoint.database.values.exact_numbers import FINITE, NOT_A_NUMBER, as_float, as_whole, split
from model_checkpoint.database.values.point_columns import PointColumns

Point = tuple[int, float, int, float]  # step, at, grade, value
SeriesId = tuple[int, int]  # numbers of experiment and key

_POINT = ("experiment", "key", "step", "at", "grade", "value")
_STORED = """SELECT step, at, grade, value FROM experiment_metrics
    WHERE experiment = :experiment AND experiment_metrics.key = :key AND step BETWEEN :low AND :high"""


class Stretch(NamedTuple):
    """What a summary says of some points."""

    points: int
    not_numbers: int
    last: Point
    low: tuple[int, float, int] | None  # grade, value, step
    high: tuple[int, float, int] | None


_BLANK = Stretch(0, 0, (0, 0.0, 0, 0.0), None, None)


def grouped(metrics: Iterable[Metric]) -> dict[tuple[str, str], list[Point]]:
    """The points of each series in order, every number checked.

    Example:
        >>> grouped([Metric("r", "loss", 0.5, 2, 8.0), Metric("r", "loss", float("inf"), 1, 7.0)])
        {('r', 'loss'): [(1, 7.0, 1, 0.0), (2, 8.0, 0, 0.5)]}
    """
    series: dict[tuple[str, str], list[Point]] = {}
    now, finite = time.time(), math.isfinite
    for experiment_id, name, value, step, at in metrics:
        number = value if value.__class__ is float else as_float(value, f"metric {name!r}")
        moment = now if at is None else at if at.__class__ is float else as_float(at, f"time of metric {name!r}")
        whole = step if step.__class__ is int else as_whole(step, f"step of metric {name!r}")
        point = (whole, moment, 0, number + 0.0) if finite(number) else (whole, moment, *split(number))
        try:
            series[experiment_id, name].append(point)
        except KeyError:
            series[experiment_id, name] = [point]
    for (_, name), points in series.items():
        points.sort()
        _check(name, points)
    return series


def _check(name: str, points: Sequence[Point]) -> None:
    for end in (points[0], points[-1]):
        as_whole(end[0], f"step of metric {name!r}")
    if not math.isfinite(math.fsum(point[1] for point in points)):
        raise RowRefused(f"metric {name!r}: its time must be finite seconds since 1970.")


def add_points(rows: TableRows, batches: Mapping[SeriesId, Sequence[Point] | PointColumns]) -> int:
    """Put down what is not there yet, and say how many that were."""
    order = sorted(batches)
    known = _locked(rows, order)
    new: list[tuple[Any, ...]] = []
    changed: list[dict[str, Any]] = []
    for series in order:
        before, batch = known[series], batches[series]
        if isinstance(batch, PointColumns) and _follows(batch, before):
            new += zip(repeat(series[0]), repeat(series[1]), batch.steps, batch.moments, repeat(FINITE), batch.values)
            stretch = _summed_up(batch)
        else:
            fresh = _unknown(rows, series, _points_of(batch), before)
            new += [(*series, *point) for point in fresh]
            stretch = _measured(fresh) if fresh else _BLANK
        if stretch is not _BLANK:
            merged = _columns(_merged(before, stretch))
            changed.append({"experiment": series[0], "key": series[1], **merged})
    rows.update_each("metric_summaries", ["experiment", "key"], changed)
    rows.append("experiment_metrics", _POINT, new)
    return len(new)


def _follows(batch: PointColumns, before: Stretch) -> bool:
    """Whether all of it is newer than what is there."""
    return before.points == 0 or (batch.steps[0], batch.moments[0]) > before.last[:2]


def _points_of(batch: Sequence[Point] | PointColumns) -> Sequence[Point]:
    if not isinstance(batch, PointColumns):
        return batch
    return list(zip(batch.steps, batch.moments, repeat(FINITE), batch.values))  # one never ends


def _summed_up(batch: PointColumns) -> Stretch:
    """As :func:`_measured` does, of columns."""
    steps, moments, values = batch
    low, high = min(values), max(values)
    return Stretch(
        len(values),
        0,
        (steps[-1], moments[-1], FINITE, values[-1]),
        (FINITE, low, steps[values.index(low)]),
        (FINITE, high, steps[values.index(high)]),
    )


def _locked(rows: TableRows, order: Sequence[SeriesId]) -> dict[SeriesId, Stretch]:
    """The summaries of all series, locked for this transaction; blank ones are made for new series."""
    found = _known(rows, order)
    fresh = [series for series in order if series not in found]
    if fresh:
        blank = _columns(_BLANK)
        rows.insert_missing("metric_summaries", [{"experiment": run, "key": key, **blank} for run, key in fresh])
        found |= _known(rows, fresh)
    if len(found) < len(order):
        raise RowRefused("a run or a metric of these points is not in the catalog. Save the run first.")
    return found


def _known(rows: TableRows, order: Sequence[SeriesId]) -> dict[SeriesId, Stretch]:
    found: dict[SeriesId, Stretch] = {}
    for experiment in dict.fromkeys(one for one, _ in order):
        keys = [key for one, key in order if one == experiment]
        for row in rows.find("metric_summaries", {"experiment": experiment, "key": keys}, lock=True):
            found[row["experiment"], row["key"]] = _stretch(row)
    return found


def _unknown(rows: TableRows, series: SeriesId, points: Sequence[Point], before: Stretch) -> Sequence[Point]:
    """The points that are not there; of one moment two values are both kept, the second a hair later."""
    newer = before.points == 0 or points[0][:2] > before.last[:2]
    if newer and len({point[:2] for point in points}) == len(points):
        return points
    there = {} if newer else _stored(rows, series, points[0][0], points[-1][0])
    fresh = []
    for step, at, grade, value in points:
        while there.get((step, at), (grade, value)) != (grade, value):
            at = math.nextafter(at, math.inf)
        if (step, at) not in there:
            there[step, at] = (grade, value)
            fresh.append((step, at, grade, value))
    return sorted(fresh)


def _stored(rows: TableRows, series: SeriesId, low: int, high: int) -> dict[tuple[int, float], tuple[int, float]]:
    values = {"experiment": series[0], "key": series[1], "low": low, "high": high}
    return {(step, at): (grade, value) for step, at, grade, value in rows.scan(_STORED, values)}


def _measured(points: Sequence[Point]) -> Stretch:
    """Sum up points that are in order; the earliest of equal extremes counts."""
    real = [(grade, value, step) for step, _, grade, value in points if grade != NOT_A_NUMBER]
    if not real:
        return Stretch(len(points), len(points), points[-1], None, None)
    top = max(real)[:2]
    high = next(one for one in real if one[:2] == top)
    return Stretch(len(points), len(points) - len(real), points[-1], min(real), high)


def _merged(one: Stretch, other: Stretch) -> Stretch:
    if one.points == 0:
        return other
    lows = [low for low in (one.low, other.low) if low is not None]
    highs = [high for high in (one.high, other.high) if high is not None]
    return Stretch(
        one.points + other.points,
        one.not_numbers + other.not_numbers,
        max(one.last, other.last),
        min(lows) if lows else None,
        max(highs, key=lambda high: (high[0], high[1], -high[2])) if highs else None,
    )


def _columns(stretch: Stretch) -> dict[str, Any]:
    step, at, grade, value = stretch.last
    low, high = stretch.low or (None, None, None), stretch.high or (None, None, None)
    return {
        **{"count": stretch.points, "nan_count": stretch.not_numbers},
        **{"last_step": step, "last_at": at, "last_grade": grade, "last_value": value},
        **dict(zip(("min_grade", "min_value", "min_step"), low, strict=True)),
        **dict(zip(("max_grade", "max_value", "max_step"), high, strict=True)),
    }


def _stretch(row: Mapping[Any, Any]) -> Stretch:
    return Stretch(
        row["count"],
        row["nan_count"],
        (row["last_step"], row["last_at"], row["last_grade"], row["last_value"]),
        None if row["min_grade"] is None else (row["min_grade"], row["min_value"], row["min_step"]),
        None if row["max_grade"] is None else (row["max_grade"], row["max_value"], row["max_step"]),
    )
