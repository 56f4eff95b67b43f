"""Points: the schedules worth running, each with what it takes, from the least memory to the least time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from model_checkpoint.recompute.forecast import Lanes, exposed, forecast, hidden_again
from model_checkpoint.recompute.planner import Chain, Table
from model_checkpoint.recompute.schedule import Schedule

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
    and once as if all were that can be, and the forecasts of both answers decide.

    Example:
        >>> from model_checkpoint.recompute.planner import Mode, Stage
        >>> mode = Mode(name="full", forward=1, backward=2, saved=10, forward_peak=10, backward_peak=14)
        >>> chain = Chain(stages=(Stage(output=4, gradient=4, bare=1, bare_peak=4, modes=(mode,)),) * 3)
        >>> [(point.bytes, point.seconds) for point in plan_points(chain, budget=40, slots=40)]
        [(18, 12.0), (22, 11.0), (28, 10.0), (34, 9.0)]
    """
    lanes = lanes or Lanes()
    found = {schedule: forecast(chain, schedule, lanes) for schedule in _schedules(chain, budget, lanes, slots)}
    points, best = [], math.inf
    for schedule, size in sorted(found.items(), key=lambda item: (item[1].peak, item[1].seconds)):
        if size.seconds < best:
            best = size.seconds
            points.append(Point(bytes=size.peak, seconds=size.seconds, schedule=schedule))
    return tuple(points)


def _schedules(chain: Chain, budget: int, lanes: Lanes, slots: int) -> Iterator[Schedule]:
    views = [exposed(chain, 1.0)]
    if lanes.overlap > _WORTH_HIDING:
        hidden = exposed(chain, 1.0 - lanes.overlap)
        views.append(hidden_again(hidden, lanes.overlap) if lanes.prefetch else hidden)
    for view in views:
        table = Table(view, budget=budget, slots=slots)
        for point in table.front():
            schedule = table.schedule(point.bytes)
            assert schedule is not None  # the front names only budgets that something fits
            yield schedule
