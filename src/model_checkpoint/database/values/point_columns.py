"""Point columns: what logging calls say about many metrics at a time, turned by 90 degrees.

Calls of one training loop name the same metrics in the same order, so a whole column of each is had without looking at
single points. What does not fit (numbers that are not finite, moments that are not in order) goes point by point.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, repeat
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from model_checkpoint.database.records import Metric

LoggedCall: TypeAlias = tuple[float, int, Mapping[str, float]]  # time, step, value of each metric

_MOMENT = itemgetter(1, 0)
_FLOAT, _INT = frozenset({float}), frozenset({int})


class PointColumns(NamedTuple):
    """Points of one series: in order, of different moments, all finite."""

    steps: Sequence[int]
    moments: Sequence[float]
    values: Sequence[float]


def columns_of(calls: Iterable[LoggedCall]) -> tuple[dict[str, PointColumns], list[tuple[str, float, int, float]]]:
    """The columns of each metric, and what is left over, as (name, value, step, time).

    Example:
        >>> columns_of([(10.0, 1, {"loss": 0.5}), (11.0, 2, {"loss": 0.25})])
        ({'loss': PointColumns(steps=(1, 2), moments=(10.0, 11.0), values=(0.5, 0.25))}, [])
    """
    alike: dict[tuple[str, ...], list[LoggedCall]] = {}
    for call in calls:
        alike.setdefault(tuple(call[2]), []).append(call)
    columns: dict[str, PointColumns] = {}
    rest: list[tuple[str, float, int, float]] = []
    for names, some in alike.items():
        regular = _ordered(some)
        for name, values in zip(names, zip(*(call[2].values() for call in some), strict=True), strict=True):
            if name not in columns and regular is not None and _is_plain(values):
                columns[name] = PointColumns(*regular, values)
            else:
                rest += [(name, value, step, at) for (at, step, _), value in zip(some, values, strict=True)]
    for name in {name for name, *_ in rest} & columns.keys():
        column = columns.pop(name)
        rest += zip(repeat(name), column.values, column.steps, column.moments, strict=False)
    return columns, rest


def _ordered(calls: list[LoggedCall]) -> tuple[tuple[int, ...], tuple[float, ...]] | None:
    """Sort the calls by step and time, and give both; None unless every moment is a good one of its own."""
    times, steps = [call[0] for call in calls], [call[1] for call in calls]
    if not (set(map(type, steps)) <= _INT and set(map(type, times)) <= _FLOAT and math.isfinite(math.fsum(times))):
        return None
    calls.sort(key=_MOMENT)
    moments = list(map(_MOMENT, calls))
    if any(one == other for one, other in pairwise(moments)):
        return None
    ordered_steps, ordered_times = zip(*moments, strict=True)
    return ordered_steps, ordered_times


def _is_plain(values: tuple[float, ...]) -> bool:
    return set(map(type, values)) <= _FLOAT and all(map(math.isfinite, values))


def metrics_of(experiment_id: str, points: Iterable[tuple[str, float, int, float]]) -> list[Metric]:
    """Points of one run as metrics."""
    return [Metric(experiment_id, *point) for point in points]
