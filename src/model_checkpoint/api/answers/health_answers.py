"""Health answers: integrity, damage, jobs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from model_checkpoint.api.answers.basics import Answer, Question
from model_checkpoint.api.answers.plain_values import Number


class DamageAnswer(Answer):
    """One thing wrong with a checkpoint, with its address."""

    checkpoint: str
    run: str
    run_name: str
    experiment: str
    step: int
    problem: str
    file: str
    tensor: str | None
    tensors: list[str]
    chunk: int | None
    start: int | None = Field(alias="from", description="First byte of the damaged piece of the file.")
    stop: int | None = Field(alias="to", description="Last byte of it.")
    expected: str | None = Field(description="The SHA-256 that is recorded for the piece.")
    kind: str
    at: float
    source: str | None = Field(description="What it could be repaired from: parity, mirror, or nothing known.")


class JobAnswer(Answer):
    """A piece of long work."""

    id: str
    kind: str
    subject: str
    title: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    done: int
    total: int
    rate: float
    now: str
    created: float
    started: float | None
    ended: float | None
    error: str | None
    result: dict[str, Any] | None


class JobList(Answer):
    """All work that is under way or ended of late, the latest first."""

    rows: list[JobAnswer]


class ScrubState(Answer):
    """The verification of everything that is under way."""

    job: str
    done: Number
    rate: float
    now: str


class AgeCounts(Answer):
    """How many checkpoints were last verified how long ago."""

    day: int
    week: int
    older: int
    never: int
    damaged: int


class IntegrityEvent(Answer):
    """One verification or repair."""

    checkpoint: str
    at: float
    what: str
    outcome: str
    seconds: float
    bytes: int


class IntegrityAnswer(Answer):
    """Whether what is stored can be trusted."""

    scrub: ScrubState | None
    ages: AgeCounts
    damage: list[DamageAnswer]
    events: list[IntegrityEvent]


class ScrubQuestion(Question):
    """How long everything may be verified for."""

    seconds: float | None = Field(default=None, gt=0, le=86_400, allow_inf_nan=False)
    run: str | None = Field(default=None, max_length=64)
