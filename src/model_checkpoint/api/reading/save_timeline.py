"""Save timeline: what saves cost, stretch by stretch and hook by hook, by the audit trail."""

from __future__ import annotations

from typing import Any

from model_checkpoint.api.library.shelves import Shelf
from model_checkpoint.database import AuditEntry, Checkpoint, CheckpointSearch, RunOverview


def list_saves(shelf: Shelf, run: RunOverview, limit: int) -> list[dict[str, Any]]:
    """The latest saves of a run; of those that nobody timed only when and how large."""
    search = CheckpointSearch(run=run.experiment.id)
    rows = shelf.connection.search_checkpoints(search, sort="-at", limit=limit).items
    entries = shelf.connection.save_entries([row.id for row in rows])
    return [_save(row, entries.get(row.id)) for row in rows]


def stall_of(shelf: Shelf, row: Checkpoint) -> float | None:
    """Seconds for which training waited for one save; None if nobody timed it."""
    entry = shelf.connection.save_entries([row.id]).get(row.id)
    waits = [one["dur"] for one in _timing(entry).get("segments", ()) if one["kind"] == "stall"]
    return float(sum(waits)) if waits else None


def _timing(entry: AuditEntry | None) -> dict[str, Any]:
    return {} if entry is None else entry.details.get("timing", {})


def _save(row: Checkpoint, entry: AuditEntry | None) -> dict[str, Any]:
    timing = _timing(entry)
    began = float(timing.get("began_at", row.created_at))
    return {
        "checkpoint": row.id,
        "step": row.step,
        "at": began,
        "bytes": row.file_size,
        "written": row.file_size if row.unique_bytes is None else row.unique_bytes,
        "actor": "" if entry is None else entry.actor,
        "outcome": "ok" if entry is None else entry.outcome,
        "segments": [
            {"kind": str(one["kind"]), "from": float(one["from"]), "dur": float(one["dur"])}
            for one in timing.get("segments", ())
        ],
        "hooks": [_hook(one, began) for one in timing.get("hooks", ())],
    }


def _hook(told: dict[str, Any], began: float) -> dict[str, Any]:
    outcome = str(told["outcome"])
    ok = outcome in ("done", "skipped", "handled")
    return {
        "name": str(told["hook"]),
        "event": str(told["event"]),
        "priority": str(told["priority"]),
        "at": float(told["began_at"]) - began,
        "ms": float(told["seconds"]) * 1e3,
        "ok": ok,
        "error": None if ok else outcome,
        "outcome": outcome,
    }
