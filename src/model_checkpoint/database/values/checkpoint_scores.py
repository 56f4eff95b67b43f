"""Checkpoint scores: the numbers a checkpoint can be chosen by, the index over them, and the flags of the chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model_checkpoint.database.records import COMMITTED, Checkpoint
from model_checkpoint.database.values.exact_numbers import as_float, split
from model_checkpoint.database.values.json_values import as_mapping

KINDS = {kind: f"is_best_{kind}" for kind in ("loss", "val_loss", "metric")}
FLAGS = tuple(KINDS.values())
_INDEXED = ("checkpoint_id", "key", "experiment_id", "grade", "value", "step", "created_at")


def scores_of(checkpoint: Checkpoint) -> dict[str, float]:
    """What a checkpoint can be chosen by; the fields win over metrics of the same name."""
    own = {"loss": checkpoint.loss, "val_loss": checkpoint.val_loss}
    named = {
        **as_mapping(checkpoint.metrics, "metrics"),
        **{name: value for name, value in own.items() if value is not None},
    }
    return {name: as_float(value, f"checkpoint {checkpoint.id}: metric {name!r}") for name, value in named.items()}


def index_rows(one: Checkpoint, numbers: Mapping[str, int]) -> list[dict[str, Any]]:
    """The rows of a checkpoint in the index of the best; ``numbers`` has every metric it names."""
    if one.state != COMMITTED:
        return []  # what is deleted is nobody's best
    return [
        dict(
            zip(
                _INDEXED,
                (one.id, numbers[name], one.experiment_id, *split(score), one.step, one.created_at),
                strict=True,
            )
        )
        for name, score in sorted(scores_of(one).items())
    ]
