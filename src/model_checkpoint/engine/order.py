"""Order: what a caller asked to save, checked before anything is touched."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from model_checkpoint.engine.listing import step_name
from model_checkpoint.manifest import pack
from model_checkpoint.options import CheckpointFormat, LayoutLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be saved, apart from the state."""

    name: str
    attempt: str
    step: int | None
    metrics: Mapping[str, float]
    metadata: Mapping[str, Any]
    layout: CheckpointFormat
    limits: LayoutLimits


def place_order(
    *,
    step: int | None,
    name: str | None,
    metrics: Mapping[str, float] | None,
    metadata: Mapping[str, Any] | None,
    layout: CheckpointFormat,
) -> Order:
    """Check the caller's wishes before anything is touched."""
    if step is not None and (isinstance(step, bool) or not isinstance(step, int) or step < 0):
        raise ValueError(f"step must be a whole number of 0 or more, got {step!r}")
    numbers = {key: _as_number(key, value) for key, value in (metrics or {}).items()}
    pack(dict(metadata or {}))
    attempt = uuid.uuid4().hex
    chosen = name or (step_name(step) if step is not None else f"save-{datetime.now(UTC):%Y%m%d-%H%M%S}-{attempt[:8]}")
    return Order(
        name=chosen,
        attempt=attempt,
        step=step,
        metrics=numbers,
        metadata=dict(metadata or {}),
        layout=CheckpointFormat(layout),
        limits=LayoutLimits(),
    )


def _as_number(key: str, value: Any) -> float | int:
    """Accept numbers and what turns into one without loss (0-d arrays and tensors)."""
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, (bool, int, float)):
        return number
    raise TypeError(f"metric {key!r} must be a number, got {type(value).__qualname__}. Put other data into metadata=.")
