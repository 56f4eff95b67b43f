"""Row records: what a row is handed out as, and what it is made of; a row has the columns of its table by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from model_checkpoint.database.event_records import AuditEntry
from model_checkpoint.database.records import Checkpoint, Experiment
from model_checkpoint.database.values.exact_numbers import as_float, joined, split
from model_checkpoint.database.values.json_values import as_mapping, as_words
from model_checkpoint.errors import OptionInvalid

_FIELDS = tuple(field.name for field in dataclasses.fields(Checkpoint))
CHECKPOINT_COLUMNS = (*_FIELDS, "loss_grade", "val_loss_grade")
HEARD = ("last_seen", "last_step_at")  # of a run, kept apart, as they change all the time
_RUN_FIELDS = tuple(field.name for field in dataclasses.fields(Experiment) if field.name not in HEARD)
RUN_COLUMNS = ("number", *_RUN_FIELDS)


def fields_of(record: Any) -> dict[str, Any]:
    """A record that is written down as it is."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def require_fields(kind: type[Any], names: Collection[str], *, fixed: Collection[str]) -> None:
    """Refuse to change what a record does not have, or what stays as it is.

    Example:
        >>> from model_checkpoint.database.records import CheckpointMark
        >>> require_fields(CheckpointMark, ["speed"], fixed=["id"])
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: no field 'speed'; there are created_at, health, step.
    """
    known = {*kind.__annotations__} - {*fixed}
    unknown = sorted({*names} - known)
    if unknown:
        raise OptionInvalid(f"no field {unknown[0]!r}; there are {', '.join(sorted(known))}.")


def entry_of(row: Mapping[Any, Any]) -> AuditEntry:
    """The record of a row of the log."""
    return AuditEntry(**{name: value for name, value in row.items() if name != "number"})


def checkpoint_of(row: Mapping[Any, Any]) -> Checkpoint:
    """The record of a checkpoint."""
    fields = dict(row)
    for name in ("loss", "val_loss"):
        grade = fields.pop(f"{name}_grade")
        fields[name] = None if grade is None else joined(grade, fields[name])
    return Checkpoint(**{**fields, "verified_at": fields["verified_at"] or None})


def row_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """The row of a checkpoint."""
    row = {name: getattr(checkpoint, name) for name in _FIELDS}
    for name in ("loss", "val_loss"):
        value = row[name]
        pair = (None, None) if value is None else split(as_float(value, f"checkpoint {checkpoint.id}: {name}"))
        row[f"{name}_grade"], row[name] = pair
    metrics = as_mapping(checkpoint.metrics, "metrics")
    row["metrics"] = {k: v if isinstance(v, (int, float)) else as_float(v, k) for k, v in metrics.items()}
    row["metadata"] = as_mapping(checkpoint.metadata, "metadata")
    lists = {name: as_words(row[name], name) for name in ("parts", "tags")}
    return {**row, **lists, "verified_at": checkpoint.verified_at or 0.0}


def run_row_of(experiment: Experiment) -> dict[str, Any]:
    """The row of a run."""
    row = {name: getattr(experiment, name) for name in _RUN_FIELDS}
    return {**row, "tags": as_words(experiment.tags, "tags"), "config": as_mapping(experiment.config, "config")}


def experiment_of(row: Mapping[Any, Any]) -> Experiment:
    """The record of a run, at the step it was last heard of, which ``heard_step`` tells."""
    fields = dict(row)
    del fields["number"]
    heard = fields.pop("heard_step")
    return Experiment(**{**fields, "step": fields["step"] if heard is None else max(fields["step"], heard)})
