"""Ranking: which checkpoints are best by what was measured, who wins a tie, and what NaN means. Pure.

The order never hangs on the order in which the checkpoints came.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from model_checkpoint.errors import MetricIsNaN, OptionInvalid
from model_checkpoint.plan.choose import T, rank_by_age
from model_checkpoint.plan.metric_expressions import MetricExpression, parse_criteria

Tie = Literal["newest", "oldest"]
NanPolicy = Literal["never", "worst", "error"]

Metrics = Mapping[str, Any]
CATALOG = "catalog"  # in the metadata of a checkpoint: what a manager remembers there


def contends(metadata: Mapping[str, Any]) -> bool:
    """Whether a checkpoint may be called the best, by its metadata; one saved with ``update_best=False`` may not.

    Example:
        >>> contends({}), contends({"catalog": {"contends": False}})
        (True, False)
    """
    known = metadata.get(CATALOG)
    return not isinstance(known, Mapping) or bool(known.get("contends", True))


@dataclass(frozen=True, slots=True)
class Ranking:
    """How to order checkpoints: by the first criterion, where that is equal by the next, then by age.

    What lacks the first criterion is not ranked. ``nan="never"`` does not rank NaN either, ``"worst"`` puts it last,
    ``"error"`` refuses to rank. A later criterion that is missing or NaN comes last among equals.
    """

    criteria: tuple[MetricExpression, ...]
    tie: Tie = "newest"
    nan: NanPolicy = "never"

    def __post_init__(self) -> None:
        for name, value, known in (("tie", self.tie, ("newest", "oldest")), ("nan", self.nan, _NAN_POLICIES)):
            if value not in known:
                raise OptionInvalid(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}.")

    @classmethod
    def parse(cls, text: str, *, known: Collection[str] = (), tie: Tie = "newest", nan: NanPolicy = "never") -> Ranking:
        """Read the criteria; ``known`` are the names of metrics there are.

        Example:
            >>> str(Ranking.parse("val_loss, val_f1"))
            'min:val_loss, max:val_f1'
        """
        return cls(parse_criteria(text, known=known), tie, nan)

    @property
    def names(self) -> tuple[str, ...]:
        """Every metric it needs."""
        return tuple(dict.fromkeys(name for criterion in self.criteria for name in criterion.names))

    def order(self, candidates: Sequence[T], metrics: Sequence[Metrics]) -> list[T]:
        """The candidates that can be ranked, best first; ``metrics`` are theirs, one for one."""
        rated = []
        for candidate, measured in zip(candidates, metrics, strict=True):
            key = self.key(candidate.name, measured)
            if key is not None:
                rated.append((candidate, key))
        ranks = {id(one): rank for rank, one in enumerate(self._by_age([one for one, _ in rated]))}
        return [one for one, _ in sorted(rated, key=lambda pair: (*pair[1], (0, ranks[id(pair[0])])))]

    def _by_age(self, candidates: Sequence[T]) -> list[T]:
        newest_first = rank_by_age(sorted(candidates, key=lambda one: one.name))
        return newest_first if self.tie == "newest" else newest_first[::-1]

    def key(self, name: str, measured: Metrics) -> tuple[tuple[int, float], ...] | None:
        """Sorts the best first; None if it is not ranked."""
        values = [criterion.value(measured) for criterion in self.criteria]
        if values[0] is None:
            return None
        if _is_nan(values[0]):
            if self.nan == "error":
                raise MetricIsNaN(
                    f"{name}: {self.criteria[0].text} is NaN there, and nan='error' asks to be told. Rank with "
                    "nan='never' or nan='worst', or choose another metric.",
                    name,
                )
            if self.nan == "never":
                return None
        return tuple(
            (1, 0.0) if value is None or _is_nan(value) else (0, value if criterion.minimise else -value)
            for value, criterion in zip(values, self.criteria, strict=True)
        )

    def __str__(self) -> str:
        return ", ".join(map(str, self.criteria))


_NAN_POLICIES = ("never", "worst", "error")


def _is_nan(value: float) -> bool:
    return isinstance(value, float) and math.isnan(value)


def pareto_front(
    candidates: Sequence[T], metrics: Sequence[Metrics], first: MetricExpression, second: MetricExpression
) -> list[T]:
    """Those that no other beats in both: best in ``first`` first; of equals the newest; without a value not at all.

    Example:
        >>> from types import SimpleNamespace
        >>> points = {"a": (0.9, 5), "b": (0.8, 2), "c": (0.7, 3)}
        >>> runs = [SimpleNamespace(name=name, step=None, created="") for name in points]
        >>> metrics = [{"f1": f1, "latency": latency} for f1, latency in points.values()]
        >>> f1, latency = MetricExpression.parse("f1"), MetricExpression.parse("min:latency")
        >>> [run.name for run in pareto_front(runs, metrics, f1, latency)]
        ['a', 'b']
    """
    values = {id(one): second.value(measured) for one, measured in zip(candidates, metrics, strict=True)}
    front, best = list[T](), math.inf
    for one in Ranking((first, second)).order(candidates, metrics):
        value = values[id(one)]
        if value is None or _is_nan(value):
            continue
        cost = value if second.minimise else -value
        if cost < best or not front:
            front.append(one)
            best = cost
    return front
