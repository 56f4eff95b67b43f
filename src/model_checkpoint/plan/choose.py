"""Choose: which of several checkpoints is newest or best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

_MINIMISED = ("loss", "error", "perplexity")


class Dated(Protocol):
    """Anything with a step and a commit time."""

    @property
    def step(self) -> int | None:
        """Training step, if it has one."""
        ...

    @property
    def created(self) -> str:
        """Commit time, ISO 8601 in UTC, so that text order is time order."""
        ...


T = TypeVar("T", bound=Dated)


@dataclass(frozen=True, slots=True)
class Best:
    """A metric and the direction in which it gets better."""

    metric: str
    minimise: bool


def parse_best(text: str) -> Best:
    """Read ``"val_loss"``, ``"min:x"`` or ``"max:x"``.

    Example:
        >>> parse_best("val_loss"), parse_best("max:val_loss")
        (Best(metric='val_loss', minimise=True), Best(metric='val_loss', minimise=False))
    """
    for prefix, minimise in (("min:", True), ("max:", False)):
        if text.startswith(prefix):
            return Best(text.removeprefix(prefix), minimise)
    return Best(text, text.endswith(_MINIMISED))


def rank_by_age(candidates: Sequence[T]) -> list[T]:
    """Newest first: highest step, then latest commit; those without a step come last."""
    return sorted(candidates, key=lambda c: (-1 if c.step is None else c.step, c.created), reverse=True)


def rank_by_metric(candidates: Sequence[T], metrics: Sequence[Mapping[str, object]], best: Best) -> list[T]:
    """Best first; among equals the newest; without the metric, or with NaN, not at all."""
    rated = []
    for candidate, values in zip(candidates, metrics, strict=True):
        value = values.get(best.metric)
        if isinstance(value, int) or (isinstance(value, float) and not math.isnan(value)):
            rated.append((candidate, -value if best.minimise else value))
    order = {id(candidate): -i for i, candidate in enumerate(rank_by_age([c for c, _ in rated]))}
    return [c for c, _ in sorted(rated, key=lambda pair: (pair[1], order[id(pair[0])]), reverse=True)]
