"""Integrity routes: verification, repair and other long work."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from model_checkpoint.api.answers.basics import CHANGING, refusals
from model_checkpoint.api.answers.health_answers import IntegrityAnswer, JobAnswer, JobList, ScrubQuestion
from model_checkpoint.api.errors import StateConflict
from model_checkpoint.api.jobs.repair_work import repair_one
from model_checkpoint.api.jobs.verify_work import verify_many, verify_one
from model_checkpoint.api.library.shelves import Shelf
from model_checkpoint.api.live.changes import Change
from model_checkpoint.api.reading.integrity_state import describe_integrity
from model_checkpoint.api.routes.limits import CheckpointId, JobId
from model_checkpoint.api.routes.route_services import RouteServices, WithServices
from model_checkpoint.database import Checkpoint

router = APIRouter(prefix="/api", tags=["integrity"])
SCRUB = "scrub"


@router.get("/integrity", response_model=IntegrityAnswer, responses=refusals())
def get_integrity(services: WithServices) -> Any:
    """How far what is stored can be trusted: ages, damage with its address, the latest verifications."""
    going = next((job for job in services.jobs.jobs() if job.kind == SCRUB and not job.over), None)
    scrub = None
    if going is not None:
        told = going.to_dict()
        done = going.done / going.total if going.total else 0.0
        scrub = {"job": going.id, "done": min(1.0, done), "rate": told["rate"], "now": going.now}
    return {"scrub": scrub, **describe_integrity(services.library)}


@router.post("/integrity/scrub", response_model=JobAnswer, status_code=202, responses=refusals(*CHANGING))
def post_scrub(services: WithServices, question: ScrubQuestion) -> Any:
    """Verify everything, or one run, the one verified longest ago first."""
    shelves = services.library.shelves() if question.run is None else [services.library.run(question.run)[0]]

    def tell(run: str) -> None:
        services.changes.add(Change("damage", run))

    title = "verifying everything" if question.run is None else f"verifying run {question.run}"
    job = services.jobs.start(
        SCRUB,
        question.run or "",
        title,
        lambda job: verify_many(job, shelves, run=question.run, seconds=question.seconds, tell=tell),
    )
    return job.to_dict()


@router.post(
    "/checkpoints/{checkpoint_id}/verify", response_model=JobAnswer, status_code=202, responses=refusals(*CHANGING)
)
def post_verify(services: WithServices, checkpoint_id: CheckpointId) -> Any:
    """Compare every byte of a checkpoint with its digest."""
    shelf, row = _readable(services, checkpoint_id)
    job = services.jobs.start("verify", row.id, f"verifying {row.name}", lambda job: verify_one(job, shelf, row))
    return job.to_dict()


@router.post(
    "/checkpoints/{checkpoint_id}/repair", response_model=JobAnswer, status_code=202, responses=refusals(*CHANGING)
)
def post_repair(services: WithServices, checkpoint_id: CheckpointId) -> Any:
    """Mend a checkpoint bit-exactly from parity, mirror or equal pieces elsewhere, as far as that can be."""
    shelf, row = _readable(services, checkpoint_id)
    shelf.manager(row.root)  # says so where nothing may be changed
    job = services.jobs.start("repair", row.id, f"repairing {row.name}", lambda job: repair_one(job, shelf, row))
    return job.to_dict()


@router.get("/jobs", response_model=JobList, responses=refusals())
def get_jobs(services: WithServices) -> Any:
    """All work that is under way or ended of late, the latest first."""
    return {"rows": [job.to_dict() for job in services.jobs.jobs()]}


@router.get("/jobs/{job_id}", response_model=JobAnswer, responses=refusals(404))
def get_job(services: WithServices, job_id: JobId) -> Any:
    """One job: how far it is, or how it ended."""
    return services.jobs.get(job_id).to_dict()


@router.post("/jobs/{job_id}/cancel", response_model=JobAnswer, responses=refusals(*CHANGING))
def post_cancel(services: WithServices, job_id: JobId) -> Any:
    """Let a job stop at its next step."""
    return services.jobs.stop(job_id).to_dict()


def _readable(services: RouteServices, checkpoint_id: str) -> tuple[Shelf, Checkpoint]:
    shelf, row = services.library.checkpoint(checkpoint_id)
    if row.state == "deleted":
        raise StateConflict(f"checkpoint {row.id!r}: is in the trash. Bring it back first.")
    return shelf, row
