"""Summed rows: what a row that sums others up is handed out as; a row has its columns by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model_checkpoint.database.records import CheckpointMark
from model_checkpoint.database.summed_records import MetricSummary, RunOverview
from model_checkpoint.database.values.exact_numbers import joined
from model_checkpoint.database.values.row_records import experiment_of


def overview_of(row: Mapping[Any, Any], marks: Mapping[str, CheckpointMark]) -> RunOverview:
    """A run with the sums of its checkpoints, and the marks of two of them, by id."""
    fields = dict(row)
    newest, safe = fields.pop("newest_id"), fields.pop("safe_id")
    sums = {name: int(fields.pop(name) or 0) for name in ("checkpoints", "total_bytes", "unique_bytes")}
    return RunOverview(experiment=experiment_of(fields), newest=marks.get(newest), safe=marks.get(safe), **sums)


def summary_of(row: Mapping[Any, Any]) -> MetricSummary:
    """The record of a series; ``run`` and ``name`` are whose it is and what it is called."""
    return MetricSummary(
        experiment_id=row["run"],
        metric_name=row["name"],
        count=row["count"],
        nan_count=row["nan_count"],
        last=joined(row["last_grade"], row["last_value"]),
        last_step=row["last_step"],
        last_at=row["last_at"],
        min=None if row["min_grade"] is None else joined(row["min_grade"], row["min_value"]),
        min_step=row["min_step"],
        max=None if row["max_grade"] is None else joined(row["max_grade"], row["max_value"]),
        max_step=row["max_step"],
    )
