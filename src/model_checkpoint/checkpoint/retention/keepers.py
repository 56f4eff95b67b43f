"""Keepers: what can be kept. A checkpoint goes only if no keeper claims it; each says why, of every checkpoint.

Only checkpoints a resume could start from count for the keepers that count: a damaged or incomplete one never takes
the place of a good one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from model_checkpoint.checkpoint.retention.amounts import Age, Size, as_bytes, as_seconds
from model_checkpoint.checkpoint.retention.candidate_order import Claim, Claims, Lineup
from model_checkpoint.checkpoint.retention.candidates import Candidate
from model_checkpoint.checkpoint.retention.interval_keepers import KeepEvery, KeepLadder, steps_rung, time_rung
from model_checkpoint.checkpoint.retention.metric_keepers import KeepBest, KeepPareto
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.plan.ranking import NanPolicy, Tie


@dataclass(frozen=True, slots=True)
class KeepLast:
    """The newest so many."""

    count: int

    def judge(self, lineup: Lineup) -> Claims:
        """By age, the newest first."""
        return {
            one.name: Claim(rank <= self.count, f"{self}: number {rank}")
            for rank, one in enumerate(lineup.usable, start=1)
        }

    def __str__(self) -> str:
        return f"last {self.count}"


@dataclass(frozen=True, slots=True)
class KeepYounger:
    """What was committed not longer ago than so many seconds; what has no time counts as young."""

    seconds: float

    def judge(self, lineup: Lineup) -> Claims:
        """By the clock of whoever asks; one from the future is young."""
        return {one.name: self._verdict(one, lineup.now) for one in lineup.every}

    def _verdict(self, one: Candidate, now: datetime) -> Claim:
        young = one.committed_at is None or (now - one.committed_at).total_seconds() < self.seconds
        return Claim(young, f"{self}: {'yes' if young else 'older'}")

    def __str__(self) -> str:
        return f"younger than {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class KeepTagged:
    """What has one of these tags, or any."""

    tags: frozenset[str]

    def judge(self, lineup: Lineup) -> Claims:
        """By its tags, damaged or not."""
        return {one.name: self._verdict(frozenset(one.tags)) for one in lineup.every}

    def _verdict(self, has: frozenset[str]) -> Claim:
        common = sorted(has & self.tags if self.tags else has)
        return Claim(bool(common), f"tagged {', '.join(common)}" if common else f"{self}: is not")

    def __str__(self) -> str:
        return f"tagged {' or '.join(sorted(self.tags))}" if self.tags else "tagged at all"


@dataclass(frozen=True, slots=True)
class KeepPinned:
    """What is pinned; pins are respected without it too."""

    def judge(self, lineup: Lineup) -> Claims:
        """By its pin."""
        return {one.name: Claim(one.pinned, "pinned" if one.pinned else "not pinned") for one in lineup.every}

    def __str__(self) -> str:
        return "pinned"


@dataclass(frozen=True, slots=True)
class KeepNamed:
    """What has one of these names: all that a plan which was cut off does not speak of."""

    names: frozenset[str]

    def judge(self, lineup: Lineup) -> Claims:
        """By its name."""
        said = {True: "not in the plan that was cut off", False: "in the plan that was cut off"}
        return {one.name: Claim(keep, said[keep]) for one in lineup.every for keep in [one.name in self.names]}

    def __str__(self) -> str:
        return "all but what a plan that was cut off has left"


@dataclass(frozen=True, slots=True)
class KeepWithin:
    """Whatever fits into so many bytes beside what other keepers claim; see :func:`budget`."""

    nbytes: int
    hard: bool

    def judge(self, lineup: Lineup) -> Claims:
        """Nothing by itself: what fits is seen when all others have spoken."""
        return {}

    def __str__(self) -> str:
        return f"{'hard ' if self.hard else ''}budget of {self.nbytes} bytes"


def _count(number: int, what: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise OptionInvalid(f"{what} is a whole number of 1 or more, got {number!r}.")
    return number


def last(count: int) -> KeepLast:
    """Keep the newest ``count``: by step, then by commit time, as a load chooses.

    Example:
        >>> print(last(3))
        last 3
    """
    return KeepLast(_count(count, "last(...)"))


def best(criteria: str, count: int = 1, *, tie: Tie = "newest", nan: NanPolicy = "never") -> KeepBest:
    """Keep the best ``count`` by a metric, an expression, or several with commas between.

    Example:
        >>> print(best("val_f1 - 0.1*latency", 2))
        best 2 by val_f1 - 0.1*latency
    """
    if not isinstance(criteria, str):
        raise OptionInvalid(f"what is best is said by a text such as 'val_loss', got {criteria!r}.")
    return KeepBest(criteria, _count(count, "best(..., count)"), tie, nan)


def pareto(first: str, second: str) -> KeepPareto:
    """Keep what no other beats in both of two metrics or expressions.

    Example:
        >>> print(pareto("val_f1", "min:latency"))
        Pareto front of val_f1 and min:latency
    """
    return KeepPareto(first, second)


def every(steps: int) -> KeepEvery:
    """Keep one of every ``steps`` steps: the first at or after each multiple.

    Example:
        >>> print(every(1000))
        every 1000 steps
    """
    return KeepEvery(_count(steps, "every(...)"))


def ladder(
    steps: Mapping[int, int] | None = None, *, hours: int = 0, days: int = 0, weeks: int = 0, months: int = 0
) -> KeepLadder:
    """Keep many of the new and few of the old: ``{10: 2, 100: 1}`` is two of every 10 steps and one of every 100.

    Of each stretch of steps or time (UTC) the first stands for it, and the newest stretches count.

    Example:
        >>> print(ladder({10: 2, 1000: 1}, days=7))
        ladder of 2 x 10 steps, 1 x 1000 steps, 7 x day
    """
    rungs = [steps_rung(_count(n, "steps of a rung"), _count(k, "a rung")) for n, k in (steps or {}).items()]
    times = {"hour": hours, "day": days, "week": weeks, "month": months}
    rungs += [time_rung(unit, _count(count, f"{unit}s")) for unit, count in times.items() if count != 0]
    if not rungs:
        raise OptionInvalid("a ladder has rungs: ladder({10: 2, 100: 1}) by steps, or ladder(hours=24, days=7).")
    return KeepLadder(tuple(rungs))


def younger_than(age: Age) -> KeepYounger:
    """Keep what was committed less than ``age`` ago: seconds, a timedelta, or a text such as ``"7d"``.

    Example:
        >>> print(younger_than("1h"))
        younger than 3600 s
    """
    return KeepYounger(as_seconds(age))


def tagged(*tags: str) -> KeepTagged:
    """Keep what has one of ``tags``, or any tag at all.

    Example:
        >>> print(tagged("release", "paper"))
        tagged paper or release
    """
    if not all(isinstance(tag, str) and tag for tag in tags):
        raise OptionInvalid(f"tags are texts, got {tags!r}.")
    return KeepTagged(frozenset(tags))


def pinned() -> KeepPinned:
    """Keep what is pinned and nothing else; pins are respected without it too.

    Example:
        >>> print(pinned())
        pinned
    """
    return KeepPinned()


def budget(nbytes: Size, *, hard: bool = False) -> KeepWithin:
    """Keep, newest first, whatever fits into ``nbytes`` together with what the other keepers claim.

    A copy that several checkpoints share counts once. The others' claims are kept even beyond the budget, which is
    told; a ``hard`` budget cuts them too, the claims of the last keeper first, of the oldest first. Pinned ones, the
    newest, and what cannot be judged always stay.

    Example:
        >>> print(budget("50 GB"))
        budget of 50000000000 bytes
    """
    return KeepWithin(as_bytes(nbytes), bool(hard))
