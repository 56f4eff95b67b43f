"""Verify work: every byte of checkpoints compared with its digest; what is wrong is told with its address."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from model_checkpoint.api.jobs.job_runner import ServerJob
from model_checkpoint.api.library.shelves import Shelf
from model_checkpoint.database import Checkpoint, IntegrityRecord
from model_checkpoint.engine.reading.verify import Damage, Health, verify
from model_checkpoint.engine.root.listing import read_any_manifest
from model_checkpoint.errors import CheckpointException, CheckpointNotFound, WrongReference
from model_checkpoint.events import Progress
from model_checkpoint.integrity.verdict import CheckpointHealth
from model_checkpoint.manifest import Manifest
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import open_store

_MOST_DAMAGE = 200  # kept of one checkpoint
_PAGE = 100
_SHA256 = 32  # bytes of a digest


def verify_one(job: ServerJob, shelf: Shelf, row: Checkpoint) -> dict[str, Any]:
    """Verify one checkpoint and keep the verdict in its catalog."""
    job.total = max(job.total, row.file_size)
    record = examine(job, row)
    if shelf.keeps_verdicts:
        shelf.connection.record_integrity(record)
    return {"outcome": record.outcome, "bytes": record.bytes_read, "damage": len(record.details["damage"])}


def verify_many(
    job: ServerJob, shelves: Sequence[Shelf], *, run: str | None, seconds: float | None, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Verify all checkpoints, or those of one run, the one verified longest ago first, as far as the time goes."""
    deadline = None if seconds is None else time.monotonic() + seconds
    outcomes: dict[str, int] = {}
    due = [(shelf, row) for shelf in shelves for row in _due(shelf, run, job.created)]
    due.sort(key=lambda pair: (pair[1].verified_at or 0.0, pair[1].id))
    job.total = sum(row.file_size for _, row in due)
    for shelf, row in due:
        if outcomes and deadline is not None and time.monotonic() > deadline:
            break
        found = verify_one(job, shelf, row)
        outcomes[found["outcome"]] = outcomes.get(found["outcome"], 0) + 1
        if found["outcome"] != CheckpointHealth.HEALTHY:
            tell(row.experiment_id)
    return {"outcomes": outcomes, "complete": sum(outcomes.values()) == len(due)}


def _due(shelf: Shelf, run: str | None, before: float) -> Iterator[Checkpoint]:
    if run is not None:
        yield from shelf.connection.get_checkpoints_by_experiment(run)
        return
    limit = _PAGE
    while True:
        page = shelf.connection.due_for_verification(before=before, limit=limit)
        if len(page) < limit:
            yield from page
            return
        limit *= 4


def examine(job: ServerJob, row: Checkpoint) -> IntegrityRecord:
    """What verification finds in one checkpoint, as the catalog keeps it."""
    start, before = time.monotonic(), job.done

    def advance(progress: Progress) -> None:
        job.advance(before + progress.done - job.done, row.name)

    if not row.root or not row.name:
        return _record(row, "unreadable", [{"problem": "no root is recorded for it, so nothing can be read."}], start)
    store = open_store(row.root)
    try:
        health = verify(store, name=row.name, progress=advance)[0]
    except (CheckpointNotFound, WrongReference) as error:
        return _record(row, "missing", [{"problem": str(error)}], start)
    except CheckpointException as error:
        return _record(row, "unreadable", [{"problem": str(error)}], start)
    if health.info.id and health.info.id != row.id:
        problem = f"{health.info.path}: holds the checkpoint {health.info.id}, its record says {row.id}."
        return _record(row, "damaged", [{"problem": problem}], start, health)
    return _record(row, _outcome(health), list(_addresses(store, row, health)), start, health)


def _outcome(health: Health) -> str:
    if health.ok:
        return "healthy"
    return "unreadable" if all(one.unread for one in health.damage) else "damaged"


def _record(
    row: Checkpoint, outcome: str, damage: list[dict[str, Any]], start: float, health: Health | None = None
) -> IntegrityRecord:
    digest = {"passed": outcome == "healthy", "problems": [one["problem"] for one in damage[:_MOST_DAMAGE]]}
    parity = [] if health is None else [one.problem for one in health.parity[:_MOST_DAMAGE]]
    return IntegrityRecord(
        checkpoint_id=row.id,
        outcome=outcome,
        seconds=time.monotonic() - start,
        bytes_read=0 if health is None else health.bytes_read,
        details={
            "path": row.file_path,
            "repaired": False,
            "checks": {"digest": digest},
            "parity": parity,
            "damage": damage[:_MOST_DAMAGE],
        },
    )


def _addresses(store: Store, row: Checkpoint, health: Health) -> Iterator[dict[str, Any]]:
    """Each damage with file, piece, bytes and digest, as far as the manifest tells."""
    if not health.damage:
        return
    try:
        manifest: Manifest | None = read_any_manifest(store, row.name)
    except CheckpointException:
        manifest = None
    source = "mirror" if health.info.mirror else "parity" if health.info.parity else None
    for one in health.damage:
        yield {
            "problem": one.problem,
            "file": one.file,
            "chunk": one.chunk,
            "tensors": list(one.tensors),
            "kind": "unread" if one.unread else "chunk" if one.chunk is not None else "file",
            "source": source,
            **_bytes_of(manifest, one),
        }


def _bytes_of(manifest: Manifest | None, damage: Damage) -> dict[str, Any]:
    records = [] if manifest is None else [*manifest.files, *manifest.extras]
    record = next((one for one in records if one.name == damage.file), None)
    if record is None or damage.chunk is None or not 0 <= damage.chunk < len(record.ends):
        return {}
    expected = base64.b64decode(record.sha256)[_SHA256 * damage.chunk :][:_SHA256].hex() or None
    if record.frames:  # where a compressed piece lies, only its frame tells
        return {"expected": expected}
    start = record.ends[damage.chunk - 1] if damage.chunk else 0
    return {"from": start, "to": record.ends[damage.chunk] - 1, "expected": expected}
