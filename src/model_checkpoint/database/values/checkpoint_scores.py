"""Checkpoint scores: the numbers a checkpoint can be chosen by."""

from __future__ import annotations

from model_checkpoint.database.records import Checkpoint
from model_checkpoint.database.values.exact_numbers import as_float
from model_checkpoint.database.values.json_values import as_mapping


def scores_of(checkpoint: Checkpoint) -> dict[str, float]:
    """What a checkpoint can be chosen by; the fields win over metrics of the same name."""
    own = {"loss": checkpoint.loss, "val_loss": checkpoint.val_loss}
    named = {
        **as_mapping(checkpoint.metrics, "metrics"),
        **{name: value for name, value in own.items() if value is not None},
    }
    return {name: as_float(value, f"checkpoint {checkpoint.id}: metric {name!r}") for name, value in named.items()}
