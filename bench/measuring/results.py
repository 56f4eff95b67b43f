"""Results: what a section measured, what it promises, and whether it held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.measuring.measure import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One target and the figure it is held against."""

    claim: str
    value: float
    limit: float
    at_most: bool = True
    unit: str = "x"

    @property
    def holds(self) -> bool:
        """Whether the figure, as printed, is within the limit."""
        shown = round(self.value, 2)
        return shown <= self.limit if self.at_most else shown >= self.limit


@dataclass(slots=True, kw_only=True)
class Table:
    """One operation: the samples of every contender, round by round."""

    title: str
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def add(self, contender: str, sample: Sample) -> None:
        """Note one round."""
        self.samples.setdefault(contender, []).append(sample)

    def ratio(self, mine: str, other: str) -> float:
        """How long ``mine`` takes per byte where ``other`` takes 1: the median of the ratios within each round."""
        pairs = zip(self.samples[mine], self.samples[other], strict=True)
        return median(other_one.speed / one.speed for one, other_one in pairs)


@dataclass(slots=True, kw_only=True)
class Section:
    """One chapter of the report."""

    title: str
    intro: str
    tables: Sequence[Table] = ()
    facts: Mapping[str, str] = field(default_factory=dict)  # figures that fit no table
    grid: Sequence[Sequence[str]] = ()  # a table of its own shape, first row the heading
    notes: Sequence[str] = ()
    text: str = ""  # what a program of its own printed
    verdicts: Sequence[Verdict] = ()
