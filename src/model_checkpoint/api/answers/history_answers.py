"""History answers: lineage, saves, hooks, memory plan, loss scale."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from model_checkpoint.api.answers.basics import Answer
from model_checkpoint.api.answers.plain_values import Number


class LineageMark(Answer):
    """One checkpoint on the track of a run."""

    id: str
    step: int
    at: float
    health: str
    pinned: bool


class LineageNode(Answer):
    """One run: what it went on from, and what it changed."""

    run: str
    name: str
    experiment: str
    status: str
    parent: str | None
    checkpoint: str | None
    step: int | None = Field(description="Where it leaves its parent.")
    first_step: int | None = Field(description="Of its first checkpoint; from where it left on, if it counts on.")
    last_step: int
    started: float | None
    changed: dict[str, list[Any]] = Field(description="Settings that differ from the parent's: before and after.")
    checkpoints: list[LineageMark]


class LineageAnswer(Answer):
    """Where runs came from."""

    nodes: list[LineageNode]


class SaveSegment(Answer):
    """One stretch of a save, in seconds from its beginning; training waited during `stall`."""

    kind: str
    start: float = Field(alias="from")
    dur: float


class HookAnswer(Answer):
    """What one hook cost on one event."""

    name: str
    event: str
    priority: str
    at: float
    ms: float
    ok: bool
    error: str | None
    outcome: str


class SaveAnswer(Answer):
    """One save, from the call to the last hook."""

    checkpoint: str
    step: int
    at: float
    bytes: int
    written: int
    actor: str
    outcome: str
    segments: list[SaveSegment]
    hooks: list[HookAnswer]


class SaveList(Answer):
    """The saves of a run, the latest first."""

    rows: list[SaveAnswer]


class BudgetPoint(Answer):
    """One budget, and the time it leads to relative to plain training."""

    bytes: int
    slow: float
    measured: bool


class MemoryStage(Answer):
    """What becomes of one stage of the model."""

    name: str
    act: int
    how: str
    ms: float


class MemoryPlanAnswer(Answer):
    """How a model fits into its memory."""

    budget: int
    floor: int
    plain: int
    peak: int
    chosen: int | None = Field(description="Which of the points is in force.")
    pts: list[BudgetPoint]
    stages: list[MemoryStage]


class ScaleEventAnswer(Answer):
    """One thing that happened to the loss scale."""

    step: int
    scale: Number
    event: str
    detail: str


class LossScaleAnswer(Answer):
    """How the loss scale moved, by the newest checkpoint that tells."""

    checkpoint: str
    step: int
    x: list[int]
    y: list[Number]
    skipped: list[ScaleEventAnswer]
    events: list[ScaleEventAnswer]
