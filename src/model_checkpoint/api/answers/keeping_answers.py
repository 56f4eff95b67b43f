"""Keeping answers: retention, trash, storage."""

from __future__ import annotations

from pydantic import Field

from model_checkpoint.api.answers.basics import Answer, Question


class KeepQuestion(Question):
    """Keepers in words, as ``mckpt prune --keep`` takes them, and of which run."""

    keep: list[str] = Field(min_length=1, max_length=20, description="E.g. `last:3`, `best:val_loss:2`, `every:1000`.")
    run: str | None = Field(default=None, max_length=64, description="One run; all runs without.")


class PlannedCheckpoint(Answer):
    """What becomes of one checkpoint, and why."""

    id: str
    run: str
    run_name: str
    experiment: str
    name: str
    step: int | None
    at: float | None
    healthy: bool
    keep: bool
    why: list[str]
    frees: int


class PlanAnswer(Answer):
    """What would go and what would stay; nothing is removed until the plan of this id is applied."""

    plan_id: str
    rows: list[PlannedCheckpoint]
    keeps: int
    drops: int
    frees: int
    notes: list[str]
    until: float = Field(description="Until when the plan can be applied.")
    cli: str


class ApplyQuestion(Question):
    """Which plan to carry out."""

    plan_id: str = Field(max_length=64)


class AppliedAnswer(Answer):
    """What went to the trash, and by what id and until when it comes back."""

    undo_id: str
    until: float
    removed: list[str]
    frees: int


class UndoQuestion(Question):
    """What to bring back."""

    undo_id: str = Field(max_length=64)


class UndoneAnswer(Answer):
    """What is back, and what is not, with the reason."""

    restored: list[str]
    lost: dict[str, str]


class StorageDay(Answer):
    """Bytes that were in use at one time."""

    t: float
    used: int


class DiskAnswer(Answer):
    """One disk: who uses it, how fast it fills, when it is full."""

    name: str
    roots: list[str]
    size: int | None
    free: int | None
    used: int
    other: int | None
    rate: float = Field(description="Bytes a day, at the pace of the latest saves of roots that still save.")
    full_at: float | None
    days: list[StorageDay]


class RunSpace(Answer):
    """What one run holds."""

    id: str
    name: str
    experiment: str
    unique: int
    shared: int
    n: int


class TrashedAnswer(Answer):
    """One checkpoint in the trash."""

    id: str
    run: str
    run_name: str
    experiment: str
    name: str
    step: int
    bytes: int
    deleted_at: float
    until: float
    writable: bool


class StorageAnswer(Answer):
    """Where the bytes are."""

    disks: list[DiskAnswer]
    runs: list[RunSpace]
    trash: list[TrashedAnswer]
