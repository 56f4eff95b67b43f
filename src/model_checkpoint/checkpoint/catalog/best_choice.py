"""Best choice: which checkpoint of a run is the best, by loss, validation loss and any metric or expression.

What is best is written into the catalog with each save, and can be asked anew by another criterion at any time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.database.records import Checkpoint, Comparable
from model_checkpoint.plan.metric_expressions import MetricExpression, MetricName

_PAGE, _GROWTH = 500, 32
_LOSSES = ("loss", "val_loss")

Beats = Callable[[Comparable, Comparable], bool]


def measures_of(row: Comparable) -> dict[str, Any]:
    """All numbers a checkpoint can be chosen by."""
    own = {"loss": row.loss, "val_loss": row.val_loss}
    return {**row.metrics, **{name: value for name, value in own.items() if value is not None}}


def criteria_of(row: Checkpoint, best_metric: str | None) -> dict[str, MetricExpression]:
    """What each kind of flag is decided by; ``metric`` is what was chosen, or the only one there is."""
    kinds = {name: _parsed(f"min:{name}", _LOSSES) for name in _LOSSES}
    others = [name for name in row.metrics if name not in _LOSSES]
    if best_metric is not None:
        kinds["metric"] = _parsed(best_metric, tuple(sorted(measures_of(row))))
    elif len(others) == 1:
        kinds["metric"] = _parsed(others[0], tuple(others))
    return kinds


@lru_cache(maxsize=256)
def _parsed(text: str, known: tuple[str, ...]) -> MetricExpression:
    """Runs ask the same again and again."""
    return MetricExpression.parse(text, known=known)


def contests(row: Checkpoint, best_metric: str | None) -> Mapping[str, Beats]:
    """Of each kind of flag, whether a new checkpoint takes it from the one that has it."""
    return {kind: _beats(expression) for kind, expression in criteria_of(row, best_metric).items()}


def _beats(expression: MetricExpression) -> Beats:
    def beats(holder: Comparable, new: Comparable) -> bool:
        rank = rank_of(expression, new)
        other = rank_of(expression, holder)
        return rank is not None and (other is None or holder is new or rank > other)

    return beats


def rank_of(expression: MetricExpression, row: Comparable) -> tuple[float, int, float, str] | None:
    """Sorts the best last, among equals the newest; None for what was not measured, or is no number."""
    value = expression.value(measures_of(row))
    if value is None or math.isnan(value):
        return None
    return -value if expression.minimise else value, row.step, row.created_at, row.id


def find_best(
    connection: EnhancedDatabaseConnection, experiment_id: str, expression: MetricExpression
) -> Iterator[Checkpoint]:
    """The checkpoints of a run that an expression ranks, best first; the first by a metric is cheap to ask for."""
    if isinstance(expression.formula, MetricName):
        yield from _by_metric(
            connection, experiment_id, expression.formula.name, "min" if expression.minimise else "max"
        )
        return
    ranked = [
        (rank, row) for row in all_rows(connection, experiment_id) if (rank := rank_of(expression, row)) is not None
    ]
    yield from (row for _, row in sorted(ranked, key=lambda pair: pair[0], reverse=True))


def _by_metric(
    connection: EnhancedDatabaseConnection, experiment_id: str, metric: str, direction: str
) -> Iterator[Checkpoint]:
    """One, and if that is not enough the next ones, more of them each time."""
    wanted, seen = 1, set[str]()
    while True:
        found = connection.best(experiment_id, metric, direction, k=wanted)
        fresh = [row for row in found if row.id not in seen]
        yield from fresh
        if len(found) < wanted:
            return
        seen |= {row.id for row in fresh}
        wanted *= _GROWTH


def all_rows(connection: EnhancedDatabaseConnection, experiment_id: str) -> Iterator[Checkpoint]:
    """Every checkpoint of a run that is not deleted, newest first, a page at a time."""
    page = connection.page(experiment_id, limit=_PAGE)
    yield from page.items
    while page.next:
        page = connection.page(experiment_id, limit=_PAGE, after=page.next)
        yield from page.items


def flag_anew(
    connection: EnhancedDatabaseConnection, experiment_id: str, kinds: Mapping[str, MetricExpression]
) -> None:
    """Let each flag be where it belongs, whatever was deleted or brought back."""
    for kind, expression in kinds.items():
        best = next(find_best(connection, experiment_id, expression), None)
        connection.flag_best(experiment_id, kind, [] if best is None else [best.id])
