"""Calibrate: turn the planner's model of memory into a promise, by running candidates once under the tracker.

Every candidate's measured peak is remembered. For a budget, the fastest candidate whose *measured* peak fits is taken.
Answers given before bound later ones, so within one calibration a larger budget never gets a smaller peak.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from model_checkpoint.recompute.auto.common.errors import BudgetTooSmall
from model_checkpoint.recompute.auto.planning.forecast import Forecaster, Lanes
from model_checkpoint.recompute.auto.planning.merge import merge_chain
from model_checkpoint.recompute.auto.planning.planner import Chain
from model_checkpoint.recompute.auto.planning.points import Point, plan_points
from model_checkpoint.recompute.auto.planning.schedule import Schedule, expand, keep_all

_TRIES = 8
_CLOSE = 0.995  # a peak this near to the budget is not worth another try


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSchedule:
    """A schedule with what was predicted and measured of it."""

    schedule: Schedule
    seconds: float  # predicted
    predicted: int
    peak: int  # measured


class Calibration:
    """All candidates of one profile.

    Args:
        chain: the stages with the tail as the last one.
        base: bytes held before the first stage.
        plain_peak: measured peak of plain training.
        plain_seconds: measured time of a plain step; what it takes beyond the stages (head, loss) is in every plan.
        measure: runs one step by a schedule and returns its peak.
        lanes: what runs beside the main thread; nothing when None.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        base: int,
        plain_peak: int,
        plain_seconds: float,
        measure: Callable[[Schedule], int],
        lanes: Lanes | None = None,
    ) -> None:
        short, self._groups = merge_chain(chain)
        self._base, self._measure = base, measure
        self.points = plan_points(short, budget=max(chain.keep_all_peak, plain_peak, 1), lanes=lanes)
        plain = Forecaster(chain).take(keep_all(len(chain.stages)))
        self.plain = TriedSchedule(
            schedule=keep_all(len(chain.stages) - 1),
            seconds=plain_seconds,
            predicted=base + plain.peak,
            peak=plain_peak,
        )
        self._beyond = plain_seconds - plain.seconds
        self._tried: dict[Schedule, TriedSchedule] = {self.plain.schedule: self.plain}
        self._answers: list[tuple[int, int]] = []  # budget, peak
        self._floor_known = False

    @property
    def candidates(self) -> list[TriedSchedule]:
        """Everything measured so far."""
        return list(self._tried.values())

    def seconds(self, point: Point) -> float:
        """The predicted time of a whole step by a point of the front."""
        return point.seconds + self._beyond

    def floor(self) -> int:
        """The smallest measured peak; the leanest plans are tried on first use."""
        if not self._floor_known:
            least = self.points[0].bytes if self.points else 0
            for share in (1.0, 1.03, 1.08):
                if self.points:
                    self._try(self._index(int(least * share)))
            self._floor_known = True
        return min(candidate.peak for candidate in self._tried.values())

    def choose(self, budget: int) -> TriedSchedule:
        """The fastest candidate whose measured peak is within ``budget``; plain training where that fits.

        Raises:
            BudgetTooSmall: even the leanest plan needs more.
        """
        floor = self.floor()
        if budget < floor:
            raise BudgetTooSmall(
                f"memory_budget: {budget} bytes is below the floor of {floor} bytes for this model and input. "
                "Ask for at least that, or use a smaller batch.",
                floor_bytes=floor,
            )
        if budget >= self.plain.peak:
            self._answers.append((budget, self.plain.peak))
            return self.plain
        self._search(budget)
        low = max((peak for asked, peak in self._answers if asked <= budget), default=0)
        high = min((peak for asked, peak in self._answers if asked >= budget), default=budget)
        fitting = [c for c in self._tried.values() if low <= c.peak <= min(budget, high)]
        best = min(fitting, key=lambda c: (c.seconds, c.peak))
        self._answers.append((budget, best.peak))
        return best

    def _search(self, budget: int) -> None:
        """Try schedules around the budget, each aimed by the error of the one before."""
        low, high = -1, len(self.points)
        index = self._index(budget - self._base)
        for _ in range(_TRIES):
            index = min(max(index, low + 1), high - 1)
            peak = self._try(index).peak
            if peak <= budget:
                low = index
            else:
                high = index
            if low + 1 >= high or _CLOSE * budget <= peak <= budget:
                return
            aimed = self._index(self.points[index].bytes + (budget - peak))
            index = aimed if low < aimed < high else (low + high) // 2

    def _index(self, size: int) -> int:
        """The last point of the front within ``size`` bytes, or the first of all."""
        return max(bisect_right(self.points, size, key=lambda point: point.bytes) - 1, 0)

    def _try(self, index: int) -> TriedSchedule:
        point = self.points[index]
        schedule = expand(point.schedule, self._groups)[:-1]  # the tail is no stage of the model
        if schedule not in self._tried:
            self._tried[schedule] = TriedSchedule(
                schedule=schedule,
                seconds=self.seconds(point),
                predicted=self._base + point.bytes,
                peak=self._measure(schedule),
            )
        return self._tried[schedule]
