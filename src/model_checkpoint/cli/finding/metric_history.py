"""Metric history: the metrics of all checkpoints of a root, by step; read from the heads of their manifests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.root.listing import scan
from model_checkpoint.engine.root.refs import parse_ref
from model_checkpoint.errors import ExpressionInvalid
from model_checkpoint.plan import MetricExpression
from model_checkpoint.storage.locate import open_store


class MetricHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One metric over the checkpoints of a root that have a step, oldest first."""

    name: str
    here: Any  # of the checkpoint that is looked at; None if it has none
    steps: Sequence[int]
    values: Sequence[float]
    minimise: bool
    best: float | None
    best_step: int | None


def minimises(name: str) -> bool:
    """Whether less of a metric is better, by its name.

    Example:
        >>> minimises("val_loss"), minimises("accuracy")
        (True, False)
    """
    try:
        return MetricExpression.parse(name, known=[name]).minimise
    except ExpressionInvalid:
        return False


def metric_histories(info: CheckpointInfo) -> list[MetricHistory]:
    """The metrics that a checkpoint and its siblings were saved with."""
    store = open_store(parse_ref(info).root)
    found = sorted((one for one in scan(store) if one.step is not None), key=lambda one: (one.step or 0, one.created))
    rows = [(one.step or 0, one.metrics) for one in found]
    names = dict.fromkeys([*info.metrics, *sorted(name for _, metrics in rows for name in metrics)])
    return [_history(name, info.metrics.get(name), rows) for name in names]


def _history(name: str, here: Any, rows: Sequence[tuple[int, dict[str, Any]]]) -> MetricHistory:
    points = [(step, float(metrics[name])) for step, metrics in rows if _is_number(metrics.get(name))]
    finite = [(value, step) for step, value in points if math.isfinite(value)]
    less = minimises(name)
    best = (min if less else max)(finite, default=None)
    return MetricHistory(
        name=name,
        here=here,
        steps=[step for step, _ in points],
        values=[value for _, value in points],
        minimise=less,
        best=best[0] if best else None,
        best_step=best[1] if best else None,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
