"""Best model selection: pins the best few by a weighted sum of metrics, and keeps an index of them."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_checkpoint import forks
from model_checkpoint.hooks.base_hook import BaseHook
from model_checkpoint.hooks.builtin.json_lines import replace_json
from model_checkpoint.hooks.builtin.strategies.catalog_protocol import StrategyCatalog, StrategyCheckpoint
from model_checkpoint.hooks.errors import HookInvalid
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookPriority

_LOG = logging.getLogger(__name__)
WEIGHTS: Mapping[str, float] = {"val_loss": -1.0, "loss": -0.5, "val_accuracy": 1.0, "accuracy": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedModel:
    """One of the best: its place, its score, and the metrics that made it."""

    checkpoint_id: str
    rank: int
    score: float
    metrics: Mapping[str, float]


class BestModelSelectionHook(BaseHook):
    """Before retention, pins the best ``top_k`` checkpoints and unpins those it pinned that are no longer among them.

    The score is the sum of ``metric_weights`` times metrics, over the metrics that all candidates have; one with a
    value that is no number is no candidate. Files are not copied: a pinned checkpoint is kept by the catalog.
    ``index_file`` lists the best and outlives the process.

    Example:
        >>> from types import SimpleNamespace as Row
        >>> rows = [Row(id="a", loss=None, val_loss=0.3, metrics={}), Row(id="b", loss=None, val_loss=0.2, metrics={})]
        >>> [(one.checkpoint_id, one.score) for one in BestModelSelectionHook(None).select(rows)]
        [('b', -0.2), ('a', -0.3)]
    """

    def __init__(
        self,
        catalog: StrategyCatalog | None = None,
        *,
        metric_weights: Mapping[str, float] = WEIGHTS,
        top_k: int = 3,
        index_file: str | os.PathLike[str] = "best_models.json",
        priority: HookPriority = HookPriority.HIGH,
    ) -> None:
        if top_k < 1:
            raise HookInvalid(f"BestModelSelectionHook: top_k is at least 1, got {top_k}.")
        if not metric_weights or not all(math.isfinite(weight) for weight in metric_weights.values()):
            raise HookInvalid(
                f"BestModelSelectionHook: metric_weights are finite numbers by metric, got {metric_weights}."
            )
        self.catalog, self.metric_weights, self.top_k = catalog, dict(metric_weights), top_k
        self.index_file, self.priority = Path(index_file), priority
        self._lock = forks.lock()

    def on_before_retention_policy(self, context: HookContext) -> dict[str, Any]:
        """Pin the best before anything is given up."""
        return self.apply()

    def apply(self) -> dict[str, Any]:
        """Select, pin and unpin, and write the index; return what changed."""
        if self.catalog is None:
            raise HookInvalid(
                "BestModelSelectionHook: no catalog to work on. Give it one: BestModelSelectionHook(manager)."
            )
        with self._lock:
            rows = {one.id: one for one in self.catalog.checkpoints()}
            best = self.select(list(rows.values()))
            chosen = [one.checkpoint_id for one in best]
            ours = set(self._pinned_by_us()) & set(rows)
            fresh = [name for name in chosen if not rows[name].pinned]
            stale = sorted(ours - set(chosen))
            for name in fresh:
                self.catalog.pin(name)
            # before anything is unpinned: a crash in between leaves one pin too many, never one too few
            self._write(best, pinned=(ours & set(chosen)) | set(fresh) | set(stale))
            for name in stale:
                self.catalog.unpin(name)
            self._write(best, pinned=(ours & set(chosen)) | set(fresh))
        return {"best": chosen, "pinned": fresh, "unpinned": stale}

    def select(self, checkpoints: Sequence[StrategyCheckpoint]) -> list[SelectedModel]:
        """The best few, best first; of two with one score the newer."""
        measured = [(one, _measured(one, self.metric_weights)) for one in checkpoints]
        candidates = [(one, values) for one, values in measured if values]
        shared = set(self.metric_weights).intersection(*(values for _, values in candidates)) if candidates else set()
        if not shared:
            if candidates:
                _LOG.warning("no best model: the checkpoints have none of %s in common", ", ".join(self.metric_weights))
            return []
        scored = [(self._score(values, shared), values, one.id) for one, values in reversed(candidates)]
        scored.sort(key=lambda each: -each[0])
        return [
            SelectedModel(
                checkpoint_id=name, rank=rank, score=score, metrics={key: values[key] for key in sorted(shared)}
            )
            for rank, (score, values, name) in enumerate(scored[: self.top_k], 1)
        ]

    def _score(self, values: Mapping[str, float], shared: set[str]) -> float:
        return sum(self.metric_weights[key] * values[key] for key in sorted(shared))

    def _pinned_by_us(self) -> list[str]:
        try:
            index = json.loads(self.index_file.read_text())
        except FileNotFoundError:
            return []
        return [str(name) for name in index.get("pinned", [])]

    def _write(self, best: Sequence[SelectedModel], pinned: set[str]) -> None:
        told = [
            {"checkpoint_id": one.checkpoint_id, "rank": one.rank, "score": one.score, "metrics": dict(one.metrics)}
            for one in best
        ]
        replace_json(self.index_file, {"weights": self.metric_weights, "best": told, "pinned": sorted(pinned)})


def _measured(one: StrategyCheckpoint, weights: Mapping[str, float]) -> dict[str, float]:
    """The weighted metrics a checkpoint has; nothing when one of them is no number."""
    told = {**one.metrics, **{key: value for key in ("loss", "val_loss") if (value := getattr(one, key)) is not None}}
    values = {key: float(told[key]) for key in weights if isinstance(told.get(key), (int, float))}
    return values if all(math.isfinite(value) for value in values.values()) else {}
