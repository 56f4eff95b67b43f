"""Kept work: what took long to make is made once: it is there, or a job makes it, or that came to nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from model_checkpoint.api.errors import StateConflict
from model_checkpoint.api.jobs.job_runner import JobRunner, ServerJob, Work
from model_checkpoint.database import Checkpoint


def kept_or_begun(
    jobs: JobRunner, kind: str, rows: Sequence[Checkpoint], *, title: str, look: Callable[[], Any], work: Work
) -> tuple[str, ServerJob | None, Any]:
    """``ready`` and what ``look`` finds, or ``computing`` or ``failed`` and the job; asking begins the work."""
    subject = " ".join(row.id for row in rows)
    going = jobs.going(kind, subject)  # before the look: what it leaves behind when it ends now is found
    found = look()
    if found is not None:
        return "ready", None, found
    if going is not None:
        return "computing", going, None
    for row in rows:
        if not row.root or not row.name:
            raise StateConflict(f"checkpoint {row.id!r}: no root is recorded for it, so its tensors cannot be read.")
    failed = jobs.failed_lately(kind, subject)
    if failed is not None:
        return "failed", failed, None
    return "computing", jobs.start(kind, subject, title, work), None
