"""Smart retention: lets the catalog forget the checkpoints that are worth least."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model_checkpoint import forks
from model_checkpoint.hooks.base_hook import BaseHook
from model_checkpoint.hooks.builtin.strategies.catalog_protocol import StrategyCatalog, StrategyCheckpoint
from model_checkpoint.hooks.builtin.strategies.score import MILESTONES, by_age, check_strategy, judged_loss, ranked
from model_checkpoint.hooks.errors import HookInvalid
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookPriority

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmartRetentionPlan:
    """Which checkpoints stay, each with its reason, and which go, each with its reason."""

    keep: Mapping[str, str]
    drop: Mapping[str, str]


class SmartCheckpointRetentionHook(BaseHook):
    """After the manager's own retention, lets the catalog forget what is worth least beyond ``max_checkpoints``.

    Pinned checkpoints, the newest and the best always stay. Deleting is the catalog's work, so its grace time, its
    audit and its own refusals hold; one it refuses is told, and the others still go.

    Example:
        >>> from types import SimpleNamespace as Row
        >>> def row(step, loss):
        ...     return Row(id=f"c-{step}", epoch=step, step=step, loss=loss, val_loss=None, metrics={}, file_size=1,
        ...                created_at=step, pinned=False)
        >>> hook = SmartCheckpointRetentionHook(None, max_checkpoints=2, retention_strategy="time_based")
        >>> dict(hook.plan([row(1, 0.1), row(2, 0.5), row(3, 0.4)]).keep)
        {'c-3': 'newest', 'c-1': 'best loss'}
    """

    def __init__(
        self,
        catalog: StrategyCatalog | None = None,
        *,
        max_checkpoints: int = 10,
        retention_strategy: str = "performance_based",
        min_improvement_threshold: float = 0.001,
        keep_epoch_intervals: Sequence[int] = MILESTONES,
        max_storage_gb: float | None = None,
        priority: HookPriority = HookPriority.LOW,
    ) -> None:
        if max_checkpoints < 1:
            raise HookInvalid(f"SmartCheckpointRetentionHook: max_checkpoints is at least 1, got {max_checkpoints}.")
        if max_storage_gb is not None and not max_storage_gb > 0:
            raise HookInvalid(f"SmartCheckpointRetentionHook: max_storage_gb is above 0, got {max_storage_gb}.")
        if not min_improvement_threshold >= 0:
            raise HookInvalid(
                f"smart retention: min_improvement_threshold is not below 0, got {min_improvement_threshold}."
            )
        self.catalog, self.max_checkpoints, self.max_storage_gb = catalog, max_checkpoints, max_storage_gb
        self.retention_strategy = check_strategy(retention_strategy)
        self.min_improvement_threshold, self.keep_epoch_intervals = (
            min_improvement_threshold,
            tuple(keep_epoch_intervals),
        )
        self.priority = priority
        self._working = forks.lock()

    def on_after_retention_policy(self, context: HookContext) -> dict[str, Any]:
        """Apply the plan to the catalog; a deletion that brings the manager back here does nothing twice."""
        if not self._working.acquire(blocking=False):
            return {"skipped": True}
        try:
            return self.apply()
        finally:
            self._working.release()

    def apply(self) -> dict[str, Any]:
        """Let the catalog forget what the plan drops; return what went, and what it refused."""
        if self.catalog is None:
            raise HookInvalid("SmartCheckpointRetentionHook: no catalog to work on. Give it one: ...Hook(manager).")
        plan = self.plan(list(self.catalog.checkpoints()))
        deleted, refused = [], {}
        for name, reason in plan.drop.items():
            try:
                self.catalog.delete(name)
            except Exception as error:  # noqa: BLE001  # whatever it refuses one for, the others may still go
                refused[name] = f"{type(error).__name__}: {error}"
                _LOG.warning("checkpoint %s stays, because the catalog refused to delete it: %s", name, error)
            else:
                deleted.append(name)
                _LOG.info("checkpoint %s was deleted: %s", name, reason)
        return {"deleted": deleted, "refused": refused, "kept": dict(plan.keep)}

    def plan(self, checkpoints: Sequence[StrategyCheckpoint]) -> SmartRetentionPlan:
        """What would stay and what would go, with reasons; nothing is done."""
        if not checkpoints:
            return SmartRetentionPlan(keep={}, drop={})
        keep, drop = _protected(checkpoints), {}
        order = ranked(
            checkpoints,
            self.retention_strategy,
            milestones=self.keep_epoch_intervals,
            min_improvement=self.min_improvement_threshold,
        )
        bytes_left = _limit(self.max_storage_gb) - sum(one.file_size or 0 for one in checkpoints if one.id in keep)
        for one in order:
            if one.id in keep:
                continue
            if len(keep) >= self.max_checkpoints:
                drop[one.id] = f"beyond {self.max_checkpoints} checkpoints by {self.retention_strategy}"
            elif (one.file_size or 0) > bytes_left:
                drop[one.id] = f"beyond {self.max_storage_gb} GB by {self.retention_strategy}"
            else:
                bytes_left -= one.file_size or 0
                keep[one.id] = f"{self.retention_strategy}: place {len(keep) + 1}"
        return SmartRetentionPlan(keep=keep, drop=drop)


def _protected(checkpoints: Sequence[StrategyCheckpoint]) -> dict[str, str]:
    """What stays whatever the limits say."""
    oldest_first = by_age(checkpoints)
    keep = {oldest_first[-1].id: "newest"}
    best = min(oldest_first, key=judged_loss)
    if judged_loss(best) < float("inf"):
        keep.setdefault(best.id, "best loss")
    for one in oldest_first:
        if one.pinned:
            keep.setdefault(one.id, "pinned")
    return keep


def _limit(gigabytes: float | None) -> float:
    return float("inf") if gigabytes is None else gigabytes * 1e9
