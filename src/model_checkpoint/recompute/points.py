"""Points: the schedules worth running, each with what it takes, from the least memory to the least time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from model_checkpoint.recompute.forecast import Forecast, Forecaster, Lanes, exposed, hidden_again
from model_checkpoint.recompute.planner import Chain, Table
from model_checkpoint.recompute.schedule import Region, Schedule

_SLOTS = 800
_WORTH_HIDING = 0.05  # less overlap than this changes no plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A schedule and its forecast."""

    bytes: int
    seconds: float
    schedule: Schedule


def plan_points(chain: Chain, *, budget: int, lanes: Lanes | None = None, slots: int = _SLOTS) -> tuple[Point, ...]:
    """Every schedule that is the fastest of its size, smallest first.

    Without workers these are the planner's own. With them the planner is asked twice, once as if nothing were hidden
    and once as if all were that can be; regions that crowd memory when run ahead are left to backward one by one; and
    the forecasts of all that decide.

    Example:
        >>> from model_checkpoint.recompute.planner import Mode, Stage
        >>> mode = Mode(name="full", forward=1, backward=2, saved=10, forward_peak=10, backward_peak=14)
        >>> chain = Chain(stages=(Stage(output=4, gradient=4, bare=1, bare_peak=4, modes=(mode,)),) * 3)
        >>> [(point.bytes, point.seconds) for point in plan_points(chain, budget=40, slots=40)]
        [(18, 12.0), (22, 11.0), (28, 10.0), (34, 9.0)]
    """
    lanes = lanes or Lanes()
    book = Forecaster(chain, lanes)
    found: dict[Schedule, Forecast] = {}
    for schedule in dict.fromkeys(_schedules(chain, budget, lanes, slots)):
        found.update(_thinned(book, schedule))
    points, best = [], math.inf
    for schedule, takes in sorted(found.items(), key=lambda item: (item[1].peak, item[1].seconds)):
        if takes.seconds < best:
            best = takes.seconds
            points.append(Point(bytes=takes.peak, seconds=takes.seconds, schedule=schedule))
    return tuple(points)


def _thinned(book: Forecaster, schedule: Schedule) -> Iterator[tuple[Schedule, Forecast]]:
    """A schedule, and what is left of its prefetch while less of it means less memory."""
    while True:
        takes = book.take(schedule)
        yield schedule, takes
        if takes.crowded is None:
            return
        schedule = tuple(
            replace(node, ahead=False) if isinstance(node, Region) and node.start == takes.crowded else node
            for node in schedule
        )


def _schedules(chain: Chain, budget: int, lanes: Lanes, slots: int) -> Iterator[Schedule]:
    views = [(exposed(chain, 1.0), slots)]
    if lanes.overlap > _WORTH_HIDING:
        hidden = exposed(chain, 1.0 - lanes.overlap)
        # half the slots: this view is rough anyway, and planning must stay quick
        views.append((hidden_again(hidden, lanes.overlap) if lanes.prefetch else hidden, -(-slots // 2)))
    for view, fineness in views:
        table = Table(view, budget=budget, slots=fineness)
        for point in table.front():
            schedule = table.schedule(point.bytes)
            assert schedule is not None  # the front names only budgets that something fits
            yield schedule
