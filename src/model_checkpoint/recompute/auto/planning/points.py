"""Points: the schedules worth running, each with what it takes, from the least memory to the least time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from model_checkpoint.recompute.auto.planning.forecast import Forecaster, Lanes, exposed, hidden_again
from model_checkpoint.recompute.auto.planning.planner import Chain, Table
from model_checkpoint.recompute.auto.planning.schedule import Region, Schedule

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
        >>> from model_checkpoint.recompute.auto.planning.planner import Mode, Stage
        >>> mode = Mode(name="full", forward=1, backward=2, saved=10, forward_peak=10, backward_peak=14)
        >>> chain = Chain(stages=(Stage(output=4, gradient=4, bare=1, bare_peak=4, modes=(mode,)),) * 3)
        >>> [(point.bytes, point.seconds) for point in plan_points(chain, budget=40, slots=40)]
        [(18, 12.0), (22, 11.0), (28, 10.0), (34, 9.0)]
    """
    lanes = lanes or Lanes()
    forecaster, front = Forecaster(chain, lanes), _Front()
    for schedule in dict.fromkeys(_schedules(chain, budget, lanes, slots)):
        for takes in forecaster.thin(schedule):
            if front.beats(takes.least, takes.seconds):
                break  # with less prefetch it takes no less than that
            if not front.beats(takes.peak, takes.seconds):
                front.add(Point(bytes=takes.peak, seconds=takes.seconds, schedule=_without(schedule, takes.late)))
    return tuple(front.points)


class _Front:
    """Points of which none is as small and as fast as another: larger and larger, faster and faster."""

    def __init__(self) -> None:
        self.points: list[Point] = []

    def beats(self, size: int, seconds: float) -> bool:
        """Whether some point is as small and as fast."""
        after = bisect_right(self.points, size, key=_size)
        return after > 0 and self.points[after - 1].seconds <= seconds

    def add(self, point: Point) -> None:
        """Take in a point that no other beats; those that it beats go."""
        start = end = bisect_left(self.points, point.bytes, key=_size)
        while end < len(self.points) and self.points[end].seconds >= point.seconds:
            end += 1
        self.points[start:end] = [point]


def _size(point: Point) -> int:
    return point.bytes


def _without(schedule: Schedule, late: frozenset[int]) -> Schedule:
    """The schedule with some of its regions left to backward."""
    return tuple(
        replace(node, ahead=False) if at in late and isinstance(node, Region) else node
        for at, node in enumerate(schedule)
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
