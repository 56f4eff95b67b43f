"""Retention routes: what would go, what went, what came back; storage and trash."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from model_checkpoint.api.answers.basics import CHANGING, refusals
from model_checkpoint.api.answers.keeping_answers import (
    AppliedAnswer,
    ApplyQuestion,
    KeepQuestion,
    PlanAnswer,
    StorageAnswer,
    UndoneAnswer,
    UndoQuestion,
)
from model_checkpoint.api.live.changes import Change
from model_checkpoint.api.reading.storage_use import describe_storage
from model_checkpoint.api.routes.route_services import RouteServices, WithServices

router = APIRouter(prefix="/api", tags=["retention"])


@router.get("/storage", response_model=StorageAnswer, responses=refusals())
def get_storage(services: WithServices) -> Any:
    """Where the bytes are, how fast they grow, when a disk is full, and what lies in the trash."""
    return describe_storage(services.library)


@router.post("/retention/plan", response_model=PlanAnswer, responses=refusals(*CHANGING))
def post_plan(services: WithServices, question: KeepQuestion) -> Any:
    """What would go and what would stay, each with its reasons; nothing is removed."""
    return services.plans.draw(question.keep, question.run)


@router.post("/retention/apply", response_model=AppliedAnswer, responses=refusals(*CHANGING))
def post_apply(services: WithServices, question: ApplyQuestion) -> Any:
    """Carry out a plan that was shown: exactly what it said goes to the trash."""
    done = services.plans.apply(question.plan_id)
    _tell(services, done["removed"])
    return done


@router.post("/retention/undo", response_model=UndoneAnswer, responses=refusals(*CHANGING))
def post_undo(services: WithServices, question: UndoQuestion) -> Any:
    """Bring back what a plan removed."""
    done = services.plans.undo(question.undo_id)
    _tell(services, done["restored"])
    return done


def _tell(services: RouteServices, ids: list[str]) -> None:
    runs = {services.library.checkpoint(id)[1].experiment_id for id in ids}
    services.changes.add(*(Change("checkpoint", run) for run in sorted(runs)))
