"""Metric keepers: the best by what was measured, and what no other beats in two ways.

As long as nothing can be ranked, all are kept: nobody knows which is best. What that hints at, ``unknown`` tells.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from model_checkpoint.checkpoint.retention.candidate_order import Claim, Claims, Lineup
from model_checkpoint.checkpoint.retention.candidates import Candidate
from model_checkpoint.engine.root.listing import unmeasured
from model_checkpoint.plan import MetricExpression, Ranking, pareto_front
from model_checkpoint.plan.ranking import NanPolicy, Tie


@dataclass(frozen=True, slots=True)
class KeepBest:
    """The best so many by what was measured."""

    criteria: str
    count: int
    tie: Tie = "newest"
    nan: NanPolicy = "never"

    def names(self, known: Collection[str]) -> tuple[str, ...]:
        """The metrics it looks at, read with those there are."""
        return Ranking.parse(self.criteria, known=known).names

    def ranking(self, lineup: Lineup) -> Ranking:
        """The criteria, read with the metrics there are."""
        return Ranking.parse(self.criteria, known=lineup.known, tie=self.tie, nan=self.nan)

    def judge(self, lineup: Lineup) -> Claims:
        """By rank; as long as nothing can be ranked, all are kept: nobody knows which is best."""
        ranking = self.ranking(lineup)
        ranked = ranking.order(lineup.usable, [one.scores for one in lineup.usable])
        if not ranked:
            return {one.name: Claim(True, f"{self}: none can be ranked, so all are kept") for one in lineup.usable}
        first = ranking.criteria[0]
        verdicts = {
            one.name: Claim(rank <= self.count, f"{self}: {first.value(one.scores):.6g} is number {rank}")
            for rank, one in enumerate(ranked, start=1)
        }
        others = {
            one.name: Claim(False, f"{self}: {_lack(first, one)}") for one in lineup.usable if one.name not in verdicts
        }
        return verdicts | others

    def unknown(self, lineup: Lineup) -> str:
        """What is wrong with the criteria, if they rank nothing."""
        ranking, metrics = self.ranking(lineup), [one.scores for one in lineup.usable]
        return "" if not metrics or ranking.order(lineup.usable, metrics) else f"{self}: {unmeasured(ranking, metrics)}"

    def __str__(self) -> str:
        return f"best {self.count} by {self.criteria}"


def _lack(criterion: MetricExpression, one: Candidate) -> str:
    if not one.contends:
        return "was saved with update_best=False"
    missing = [name for name in criterion.names if criterion.value(one.scores) is None and name not in one.scores]
    return f"has no {missing[0]}" if missing else f"{criterion.text} is no number there"


@dataclass(frozen=True, slots=True)
class KeepPareto:
    """Those that no other beats in both of two metrics."""

    first: str
    second: str

    def names(self, known: Collection[str]) -> tuple[str, ...]:
        """The metrics it looks at, read with those there are."""
        return tuple(name for text in (self.first, self.second) for name in KeepBest(text, 1).names(known))

    def judge(self, lineup: Lineup) -> Claims:
        """Whether it is on the front."""
        axes = [MetricExpression.parse(text, known=lineup.known) for text in (self.first, self.second)]
        usable, metrics = lineup.usable, [one.scores for one in lineup.usable]
        front = {one.name for one in pareto_front(usable, metrics, *axes)}
        if not front:
            return {one.name: Claim(True, f"{self}: none can be ranked, so all are kept") for one in usable}
        return {
            one.name: Claim(one.name in front, f"{self}: {'on' if one.name in front else 'not on'} the front")
            for one in usable
        }

    def unknown(self, lineup: Lineup) -> str:
        """What is wrong with the axes, if one of them ranks nothing."""
        return next((said for text in (self.first, self.second) if (said := KeepBest(text, 1).unknown(lineup))), "")

    def __str__(self) -> str:
        return f"Pareto front of {self.first} and {self.second}"
