"""Best choice: which checkpoint of a run is the best, by loss, validation loss and any metrics or expressions.

What is best is written into the catalog with each save, and can be asked anew by other criteria at any time. Several
with commas between decide one after the other, as for keepers; among equals the newest is best, and NaN never is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from model_checkpoint.checkpoint.catalog.catalog_rows import contends, criterion_of
from model_checkpoint.database.records import Checkpoint, Comparable
from model_checkpoint.errors import ExpressionInvalid, OptionInvalid
from model_checkpoint.plan import Ranking
from model_checkpoint.plan.metric_expressions import MetricName

if TYPE_CHECKING:
    from model_checkpoint.database.local.catalog_writer import CatalogWriter

_PAGE, _GROWTH = 500, 32
_LOSSES = ("loss", "val_loss")
_NAME = re.compile(r"(?:(?:min|max)\s*:\s*)?([^\W\d](?:[\w./@#%|-]*[\w%])?)")  # such as val/loss, or top@5

Beats = Callable[[Comparable, Comparable], bool]


def measures_of(row: Comparable) -> dict[str, Any]:
    """All numbers a checkpoint can be chosen by."""
    own = {"loss": row.loss, "val_loss": row.val_loss}
    return {**row.metrics, **{name: value for name, value in own.items() if value is not None}}


def criteria_of(row: Checkpoint, best_metric: str | None) -> dict[str, Ranking]:
    """What each kind of flag is decided by; ``metric`` is what is chosen, what was, or the only one there is."""
    kinds = {name: _parsed(f"min:{name}", _LOSSES) for name in _LOSSES}
    others = [name for name in row.metrics if name not in _LOSSES]
    chosen = criterion_of(row) if best_metric is None else best_metric
    if chosen is not None:
        kinds["metric"] = _parsed(chosen, tuple(sorted(measures_of(row))))
    elif len(others) == 1:
        kinds["metric"] = _parsed(others[0], tuple(others))
    return kinds


def require_criterion(text: str) -> None:
    """Refuse what can be no criterion of any run, before anything is saved by it.

    Example:
        >>> require_criterion("acc, min:latency")
        >>> require_criterion("acc -")
        Traceback (most recent call last):
        model_checkpoint.errors.ExpressionInvalid: best_metric: 'acc -': expected a metric, a number or '(' at ...
    """
    if not isinstance(text, str) or not text.strip():
        raise OptionInvalid(f"best_metric is a metric or an expression such as 'f1 - 0.1*latency', got {text!r}.")
    try:
        _parsed(text, ())
    except ExpressionInvalid as error:
        raise ExpressionInvalid(f"best_metric: {error}", at=error.at) from None


@lru_cache(maxsize=256)
def _parsed(text: str, known: tuple[str, ...]) -> Ranking:
    """Runs ask the same again and again; one word is a metric's name, also where a checkpoint lacks that metric."""
    try:
        return Ranking.parse(text, known=known)
    except ExpressionInvalid:
        name = _NAME.fullmatch(text.strip())
        if name is None:
            raise
        return Ranking.parse(text.strip(), known=(*known, name[1]))


def contests(row: Checkpoint, best_metric: str | None) -> Mapping[str, Beats]:
    """Of each kind of flag, whether a new checkpoint takes it from the one that has it."""
    if not contends(row):
        return {}
    return {kind: _beats(ranking) for kind, ranking in criteria_of(row, best_metric).items()}


def _beats(ranking: Ranking) -> Beats:
    def beats(holder: Comparable, new: Comparable) -> bool:
        rank = rank_of(ranking, new)
        if rank is None or holder is new:
            return rank is not None
        other = rank_of(ranking, holder)
        return other is None or rank > other

    return beats


def rank_of(ranking: Ranking, row: Comparable) -> tuple[Any, ...] | None:
    """Sorts the best last, among equals the newest; None for what was not measured, or is no number."""
    key = ranking.key(row.id, measures_of(row))
    if key is None:
        return None
    return *((-lacking, -value) for lacking, value in key), row.step, row.created_at, row.id


def best_first(rows: Iterable[Checkpoint], ranking: Ranking) -> list[Checkpoint]:
    """Those that may be the best and can be ranked."""
    ranked = [(rank, row) for row in rows if contends(row) and (rank := rank_of(ranking, row)) is not None]
    return [row for _, row in sorted(ranked, key=lambda pair: pair[0], reverse=True)]


def find_best(connection: CatalogWriter, experiment_id: str, ranking: Ranking) -> Iterator[Checkpoint]:
    """The checkpoints of a run that can be ranked, best first; the first by one metric is cheap to ask for."""
    first, *others = ranking.criteria
    if others or not isinstance(first.formula, MetricName):
        yield from best_first(all_rows(connection, experiment_id), ranking)
        return
    found = _by_metric(connection, experiment_id, first.formula.name, "min" if first.minimise else "max")
    yield from (row for row in found if contends(row))


def _by_metric(connection: CatalogWriter, experiment_id: str, metric: str, direction: str) -> Iterator[Checkpoint]:
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


def all_rows(connection: CatalogWriter, experiment_id: str) -> Iterator[Checkpoint]:
    """Every checkpoint of a run that is not deleted, newest first, a page at a time."""
    page = connection.page(experiment_id, limit=_PAGE)
    yield from page.items
    while page.next:
        page = connection.page(experiment_id, limit=_PAGE, after=page.next)
        yield from page.items


def flag_anew(connection: CatalogWriter, experiment_id: str, kinds: Mapping[str, Ranking]) -> None:
    """Let each flag be where it belongs, whatever was deleted or brought back."""
    for kind, ranking in kinds.items():
        best = next(find_best(connection, experiment_id, ranking), None)
        connection.flag_best(experiment_id, kind, [] if best is None else [best.id])
