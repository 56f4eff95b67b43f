"""Rungs: one checkpoint of every stretch of steps or time, of all stretches or of the newest so many.

The first of a stretch stands for it: the closest at or after its beginning. It stays the first whatever comes later, so
that pruning again and again keeps the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from model_checkpoint.checkpoint.retention.candidate_order import Claim, Claims, Lineup
from model_checkpoint.checkpoint.retention.candidates import Candidate


@dataclass(frozen=True, slots=True)
class Rung:
    """Steps or time cut into stretches of one length."""

    label: str
    stretch: Callable[[Candidate], int | None]  # which one a checkpoint is in, counted from the beginning of all
    order: Callable[[Candidate], int | str]  # what comes first in a stretch
    count: int | None  # of the newest stretches; None: all

    def judge(self, lineup: Lineup, title: str) -> Claims:
        """Whether it is the first of a stretch that counts; among equals the one committed last."""
        stretches: dict[int, list[Candidate]] = {}
        for one in lineup.usable:
            number = self.stretch(one)
            if number is not None:
                stretches.setdefault(number, []).append(one)
        counted = sorted(stretches, reverse=True)[: self.count]
        firsts = {min(stretches[number], key=self.order).name for number in counted}
        return {
            one.name: Claim(one.name in firsts, f"{title}: {self._place(one, firsts, counted)}")
            for one in lineup.usable
        }

    def _place(self, one: Candidate, firsts: set[str], counted: list[int]) -> str:
        number = self.stretch(one)
        if number is None:
            return "has no step" if one.step is None else "has no time"
        if one.name in firsts:
            return f"first of its {self.label}"
        is_old = bool(counted) and number < counted[-1]
        return f"its {self.label} is too long ago" if is_old else f"not the first of its {self.label}"

    def __str__(self) -> str:
        return f"{self.count} x {self.label}"


@dataclass(frozen=True, slots=True)
class KeepEvery:
    """One of every so many steps: the first at or after each multiple."""

    steps: int

    def judge(self, lineup: Lineup) -> Claims:
        """Whether it is the first at or after a multiple."""
        return steps_rung(self.steps, None).judge(lineup, str(self))

    def __str__(self) -> str:
        return f"every {self.steps} steps"


@dataclass(frozen=True, slots=True)
class KeepLadder:
    """Many of the new, few of the old."""

    rungs: tuple[Rung, ...]

    def judge(self, lineup: Lineup) -> Claims:
        """Whether any rung claims it; the first that does says why."""
        each = [rung.judge(lineup, f"ladder of {rung}") for rung in self.rungs]
        return {
            one.name: next((seen[one.name] for seen in each if seen[one.name].keep), each[-1][one.name])
            for one in lineup.usable
        }

    def __str__(self) -> str:
        return "ladder of " + ", ".join(map(str, self.rungs))


def steps_rung(steps: int, count: int | None) -> Rung:
    """Stretches of ``steps`` steps.

    Example:
        >>> print(steps_rung(100, 3))
        3 x 100 steps
    """

    def step(one: Candidate) -> int:
        return -1 if one.step is None else one.step

    return Rung(f"{steps} steps", lambda one: None if one.step is None else one.step // steps, step, count)


def time_rung(unit: str, count: int) -> Rung:
    """Stretches of an hour, day, week or month, by UTC.

    Example:
        >>> print(time_rung("week", 4))
        4 x week
    """

    def stretch(one: Candidate) -> int | None:
        return None if one.committed_at is None else _NUMBERS[unit](one.committed_at.astimezone(UTC))

    return Rung(unit, stretch, lambda one: one.created, count)


_NUMBERS: Mapping[str, Callable[[datetime], int]] = {
    "hour": lambda moment: moment.toordinal() * 24 + moment.hour,
    "day": lambda moment: moment.toordinal(),
    "week": lambda moment: (moment.toordinal() - 1) // 7,  # weeks begin on Monday
    "month": lambda moment: moment.year * 12 + moment.month,
}
