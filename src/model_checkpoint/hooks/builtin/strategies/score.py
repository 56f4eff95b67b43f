"""Worth: what a checkpoint is worth, by loss, age and epoch; and in which order checkpoints are given up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from model_checkpoint.hooks.builtin.strategies.catalog_protocol import StrategyCheckpoint
from model_checkpoint.hooks.errors import HookInvalid
from model_checkpoint.name_lists import did_you_mean

MILESTONES = (1, 5, 10, 25, 50, 100)
Order = Callable[[StrategyCheckpoint], tuple[Any, ...]]


def by_age(checkpoints: Sequence[StrategyCheckpoint]) -> list[StrategyCheckpoint]:
    """Oldest first: by step, then by time.

    Example:
        >>> by_age([])
        []
    """
    return sorted(checkpoints, key=lambda one: (one.step or 0, one.created_at))


def closeness(loss: float | None) -> float:
    """``1 / (1 + loss)``, carried on below 0 without a pole: falls as the loss grows; 0 when there is none.

    Example:
        >>> closeness(0.0), closeness(1.0), closeness(-1.0), closeness(None), closeness(float("nan"))
        (1.0, 0.5, 1.5, 0.0, 0.0)
    """
    if loss is None or math.isnan(loss):
        return 0.0
    return 1 / (1 + loss) if loss >= 0 else 2 - 1 / (1 - loss)


def judged_loss(checkpoint: StrategyCheckpoint) -> float:
    """The validation loss, else the training loss; infinite when there is none."""
    for loss in (checkpoint.val_loss, checkpoint.loss):
        if loss is not None and not math.isnan(loss):
            return loss
    return math.inf


def ranked(
    checkpoints: Sequence[StrategyCheckpoint],
    strategy: str,
    *,
    milestones: Sequence[int] = MILESTONES,
    min_improvement: float = 0.001,
) -> list[StrategyCheckpoint]:
    """Most wanted first.

    ``performance_based``: by loss in steps of ``min_improvement``, in a step the newest. ``time_based``: newest first.
    ``epoch_based``: milestone epochs, then newest. ``hybrid``: 0.4 validation loss, 0.4 loss, 0.1 age, 0.1 milestone.
    """
    oldest_first = by_age(checkpoints)
    place = {one.id: number for number, one in enumerate(oldest_first, 1)}

    def score(one: StrategyCheckpoint) -> float:
        recent = place[one.id] / len(place)
        return (
            0.4 * closeness(one.loss) + 0.4 * closeness(one.val_loss) + 0.1 * recent + 0.1 * (one.epoch in milestones)
        )

    orders: dict[str, Order] = {
        "performance_based": lambda one: (_stepped(judged_loss(one), min_improvement), -place[one.id]),
        "time_based": lambda one: (-place[one.id],),
        "epoch_based": lambda one: (one.epoch not in milestones, -place[one.id]),
        "hybrid": lambda one: (-score(one), -place[one.id]),
    }
    return sorted(oldest_first, key=orders[check_strategy(strategy)])


def check_strategy(strategy: str) -> str:
    """The name of a strategy, if there is one of that name.

    Example:
        >>> check_strategy("hybird")
        Traceback (most recent call last):
        ...
        model_checkpoint.hooks.errors.HookInvalid: retention_strategy 'hybird' does not exist. Did you mean 'hybrid'?
    """
    known = ["performance_based", "time_based", "epoch_based", "hybrid"]
    if strategy not in known:
        raise HookInvalid(f"retention_strategy {strategy!r} does not exist. {did_you_mean(strategy, known)}")
    return strategy


def _stepped(loss: float, least: float) -> float:
    """The loss in whole steps: what differs by less is no better."""
    steps = loss / least if least > 0 else loss
    return math.floor(steps) if least > 0 and math.isfinite(steps) else steps
