"""Repair work: damage mended from what is left, then verified again."""

from __future__ import annotations

from typing import Any

from model_checkpoint.api.errors import StateConflict
from model_checkpoint.api.jobs.job_runner import ServerJob
from model_checkpoint.api.jobs.verify_work import verify_one
from model_checkpoint.api.library.shelves import Shelf
from model_checkpoint.database import Checkpoint
from model_checkpoint.events import Progress
from model_checkpoint.storage.locate import open_store


def repair_one(job: ServerJob, shelf: Shelf, row: Checkpoint) -> dict[str, Any]:
    """Mend one checkpoint bit-exactly, as far as that can be, and tell what is lost."""
    from model_checkpoint.engine.repairing.repair import repair

    if not row.root or not row.name:
        raise StateConflict(f"checkpoint {row.id!r}: no root is recorded for it, so nothing can be mended.")
    job.total = 2 * row.file_size

    def advance(progress: Progress) -> None:
        come = row.file_size * progress.done // max(1, progress.total)
        job.advance(max(0, come - job.done), "mending")

    report = repair(open_store(row.root), row.name, progress=advance)
    job.advance(row.file_size - job.done, "verifying again")
    found = verify_one(job, shelf, row)
    told = {"files": [one.file for one in report.repaired], "lost": list(report.lost_tensors)[:100]}
    outcome = "ok" if report.ok else "incomplete"
    shelf.connection.record_audit("repair", row.id, outcome=outcome, details=told)
    return {**told, **found}
