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
from model_checkpoint.api.routes.desk import AtDesk, Desk

router = APIRouter(prefix="/api", tags=["retention"])


@router.get("/storage", response_model=StorageAnswer, responses=refusals())
def get_storage(desk: AtDesk) -> Any:
    """Where the bytes are, how fast they grow, when a disk is full, and what lies in the trash."""
    return describe_storage(desk.library)


@router.post("/retention/plan", response_model=PlanAnswer, responses=refusals(*CHANGING))
def post_plan(desk: AtDesk, question: KeepQuestion) -> Any:
    """What would go and what would stay, each with its reasons; nothing is removed."""
    return desk.plans.draw(question.keep, question.run)


@router.post("/retention/apply", response_model=AppliedAnswer, responses=refusals(*CHANGING))
def post_apply(desk: AtDesk, question: ApplyQuestion) -> Any:
    """Carry out a plan that was shown: exactly what it said goes to the trash."""
    done = desk.plans.apply(question.plan_id)
    _tell(desk, done["removed"])
    return done


@router.post("/retention/undo", response_model=UndoneAnswer, responses=refusals(*CHANGING))
def post_undo(desk: AtDesk, question: UndoQuestion) -> Any:
    """Bring back what a plan removed."""
    done = desk.plans.undo(question.undo_id)
    _tell(desk, done["restored"])
    return done


def _tell(desk: Desk, ids: list[str]) -> None:
    runs = {desk.library.checkpoint(id)[1].experiment_id for id in ids}
    desk.changes.add(*(Change("checkpoint", run) for run in sorted(runs)))
