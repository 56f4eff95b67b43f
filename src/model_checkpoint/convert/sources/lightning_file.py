"""Lightning file: the step and the metrics that a checkpoint of Lightning tells of itself."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

_MARK = "pytorch-lightning_version"
_IN_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_./]*)=(-?\d+(?:\.\d+)?(?:e-?\d+)?)")
_NO_METRICS = ("epoch", "step")


def is_lightning(state: Any) -> bool:
    """Whether a state is one that Lightning has saved."""
    return isinstance(state, Mapping) and _MARK in state


def lightning_facts(state: Mapping[str, Any], stem: str) -> tuple[int | None, dict[str, float]]:
    """The step, and the metrics: those its name tells, and the one its callbacks watch, which is exact.

    Example:
        >>> lightning_facts({"global_step": 20}, "epoch=1-step=20-val_loss=0.31")
        (20, {'val_loss': 0.31})
    """
    step = state.get("global_step")
    metrics = {key: float(value) for key, value in _IN_NAME.findall(stem) if key not in _NO_METRICS}
    callbacks = state.get("callbacks")
    for one in callbacks.values() if isinstance(callbacks, Mapping) else ():
        watched = one.get("monitor") if isinstance(one, Mapping) else None
        score = _number(one.get("current_score")) if isinstance(watched, str) else None
        if score is not None:
            metrics[watched] = score
    return (step if type(step) is int and step >= 0 else None), metrics


def _number(value: Any) -> float | None:
    if hasattr(value, "numel") and value.numel() == 1:
        value = value.item()
    return float(value) if isinstance(value, (int, float)) and not math.isnan(value) else None
