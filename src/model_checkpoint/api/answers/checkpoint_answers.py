"""Checkpoint answers: checkpoints, their parts, tensors and differences."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from model_checkpoint.api.answers.basics import Answer, Question
from model_checkpoint.api.answers.health_answers import DamageAnswer
from model_checkpoint.api.answers.plain_values import Number


class KeptBecause(Answer):
    """One reason for which a checkpoint is kept."""

    rule: str
    why: str


class CheckpointLine(Answer):
    """One checkpoint in a list."""

    id: str
    run: str
    run_name: str
    experiment: str
    name: str
    ref: str = Field(description="How a command line names it, quoted for a shell; empty if it cannot.")
    told_by: str = Field(description="What `mckpt rm` needs beside it so that this catalog hears of it; often nothing.")
    step: int
    at: float
    bytes: int
    unique: int
    health: str
    verified_at: float | None
    pinned: bool
    tags: list[str]
    note: str
    reasons: list[KeptBecause]
    metrics: dict[str, Number]
    deleted_at: float | None
    writable: bool


class CheckpointPage(Answer):
    """Some checkpoints, and how many there are of each health."""

    rows: list[CheckpointLine]
    counts: dict[str, int] = Field(description="Of all, or of the run: by health, `all`, `pinned`, and kept by `none`.")
    total: int = Field(description="How many are meant by what was asked.")
    next: str | None


class PartAnswer(Answer):
    """One part of a training state: whether it is there, what it has, and what a resume does without it."""

    name: str
    bytes: int | None
    present: bool
    has: str
    without: str


class FileAnswer(Answer):
    """One file of a checkpoint."""

    name: str
    bytes: int
    digest: str


class CommandLines(Answer):
    """What to type for the same."""

    show: str
    load: str
    verify: str
    delete: str
    restore: str


class PositionAnswer(Answer):
    """Where a run was when it saved, and whether a resume repeats an unbroken run bit for bit, or why not."""

    step: int
    epoch: int
    batch: int
    exact: bool
    reasons: list[str]


class CheckpointDetail(CheckpointLine):
    """One checkpoint, whole."""

    path: str
    checksum: str
    backend: str
    epoch: int | None
    metadata: dict[str, Any]
    parts: list[PartAnswer]
    lacking: list[str]
    run_position: PositionAnswer | None = Field(description="Where the `mc.Run` was that saved it; null if none did.")
    stall: float | None = Field(description="Seconds for which training waited; null if nobody timed the save.")
    problem: str = Field(description="Why its files cannot be looked at here and now; empty if they can.")
    files: list[FileAnswer]
    damage: list[DamageAnswer]
    children: list[str] = Field(description="Runs that went on from it.")
    prev: str | None
    next: str | None
    cli: CommandLines


class TensorAnswer(Answer):
    """One tensor: its place, its figures, and its histogram over the finite values."""

    part: str
    name: str
    shape: list[int]
    dtype: str
    bytes: int
    mean: Number
    std: Number
    min: Number
    max: Number
    norm: Number
    nan: int | None
    inf: int | None
    zeros: int | None
    hist: list[int]
    lost: bool


JobStateWord = Literal["ready", "computing", "failed"]


class TensorPage(Answer):
    """The tensors of a checkpoint, once their figures are there."""

    state: JobStateWord
    job: str | None
    error: str | None = None
    rows: list[TensorAnswer]
    total: int
    next: str | None


class MovedTensor(Answer):
    """How far one tensor moved from one checkpoint to another."""

    name: str
    shape: list[int]
    dtype: str
    rel: Number = Field(description="Norm of the difference over the norm before; infinite from zero.")
    cos: Number = Field(description="Cosine of the angle between both.")
    max_abs: Number
    changed: int = Field(description="Elements that differ.")
    spoiled: int = Field(description="Elements that were finite and are not any more.")
    norm_a: Number
    norm_b: Number
    hist_a: list[int]
    hist_b: list[int]


class DiffSummary(Answer):
    """What a comparison comes to."""

    compared: int
    changed: int
    moved: Number = Field(description="Norm of all differences over the norm of all tensors before.")


class DiffAnswer(Answer):
    """What moved between two checkpoints: what has new NaN or infinities first, then most first."""

    state: JobStateWord
    job: str | None
    error: str | None = None
    a: str
    b: str
    summary: DiffSummary | None
    rows: list[MovedTensor]
    added: list[str]
    removed: list[str]
    same: list[str]
    values: list[dict[str, str | None]]


class TagChange(Question):
    """Words to put on a checkpoint, and words to take off."""

    add: list[str] = Field(default_factory=list, max_length=50)
    remove: list[str] = Field(default_factory=list, max_length=50)


class NoteChange(Question):
    """The remark on a checkpoint; an empty one removes it."""

    text: str = Field(max_length=10_000)


class PinChange(Question):
    """Whether retention must keep a checkpoint."""

    pinned: bool
