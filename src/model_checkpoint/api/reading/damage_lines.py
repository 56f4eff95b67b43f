"""Damage lines: what verification found, with its address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from model_checkpoint.api.library.run_titles import UNTITLED, titles_in
from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, IntegrityRecord

_MOST = 200  # of one checkpoint


def damage_of(connection: EnhancedDatabaseConnection, row: Checkpoint) -> list[dict[str, Any]]:
    """What the last verification of a checkpoint found wrong; nothing if it is healthy or was never verified."""
    if row.health not in ("damaged", "missing", "unreadable"):
        return []
    last = connection.integrity(row.id, limit=1)
    if not last:
        problem = str(row.metadata.get("problem", "") or f"it is {row.health}")
        found = [_line(row, {"problem": problem}, at=row.verified_at or row.created_at)]
    else:
        found = damage_in(row, last[0])
    title = titles_in(connection, {row.experiment_id}).get(row.experiment_id, UNTITLED)
    return [{**one, **title} for one in found]


def damage_in(row: Checkpoint, record: IntegrityRecord) -> list[dict[str, Any]]:
    """The damage one verification told of; those without addresses give their sentences."""
    told: Sequence[Mapping[str, Any]] = record.details.get("damage", ())
    if not told:
        checks: Mapping[str, Any] = record.details.get("checks", {})
        told = [{"problem": problem} for check in checks.values() for problem in check.get("problems", ())]
    found = [_line(row, one, at=record.checked_at) for one in told[:_MOST]]
    return found or [_line(row, {"problem": f"it is {record.outcome}"}, at=record.checked_at)]


def _line(row: Checkpoint, told: Mapping[str, Any], *, at: float) -> dict[str, Any]:
    tensors = [str(one) for one in told.get("tensors", ())][:_MOST]
    return {
        "checkpoint": row.id,
        "run": row.experiment_id,
        "step": row.step,
        "problem": str(told.get("problem", "")),
        "file": str(told.get("file", "")),
        "tensor": tensors[0] if tensors else None,
        "tensors": tensors,
        "chunk": told.get("chunk"),
        "from": told.get("from"),
        "to": told.get("to"),
        "expected": told.get("expected"),
        "kind": str(told.get("kind", row.health)),
        "at": at,
        "source": told.get("source"),
    }
