"""Run answers: runs, their lines and pages."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from model_checkpoint.api.answers.basics import Answer
from model_checkpoint.api.answers.plain_values import Number


class StatusWord(StrEnum):
    """How a run is, in one word; each comes with its evidence."""

    ALIVE = "alive"
    STALLED = "stalled"  # the process lives, the training does not move
    DEAD = "dead"  # the process is gone without a word
    FAILED = "failed"
    STOPPED = "stopped"
    FINISHED = "finished"
    UNKNOWN = "unknown"  # of checkpoints without a tracker nobody says how the run is


class MetricGlance(Answer):
    """One metric of a run: its last value, its best one, and where that was."""

    last: Number
    last_step: int | None = None
    best: Number
    best_step: int | None


class CheckpointGlance(Answer):
    """One checkpoint in the line of a run."""

    id: str
    step: int
    at: float
    health: str


class WorkAtRisk(Answer):
    """What would be lost if the run ended now, or was lost when it ended: since the newest safe checkpoint."""

    seconds: float
    steps: int | None


class ListedRun(Answer):
    """One run in a list."""

    id: str
    name: str
    experiment: str
    status: StatusWord
    evidence: str
    step: int
    total_steps: int | None
    steps_per_s: float | None
    started: float | None
    ended: float | None
    heartbeat: float | None
    last_step_at: float | None
    host: str | None
    user: str | None
    tags: list[str]
    notes: str
    metrics: dict[str, MetricGlance]
    spark: list[Number]
    spark_key: str | None
    newest: CheckpointGlance | None
    safe: CheckpointGlance | None
    at_risk: WorkAtRisk | None
    bytes_unique: int
    n: int
    writable: bool


class RiskiestRun(Answer):
    """The living run that would lose most if it ended now."""

    run: str
    name: str
    seconds: float


class RunPage(Answer):
    """Some runs, and how many there are of each status."""

    rows: list[ListedRun]
    places: list[int] = Field(description="Where each row stands among all that were searched for, whatever `ids` are.")
    counts: dict[str, int] = Field(description="Of the runs that were searched for, whatever `ids` are.")
    all_counts: dict[str, int] = Field(description="Of all runs, whatever was searched for.")
    attention: list[ListedRun] = Field(description="Runs that stalled or died, the latest first; at most 5.")
    worst_at_risk: RiskiestRun | None
    unsafe: int = Field(description="How many that are alive, stalled or dead have no safe checkpoint.")
    metric_names: list[str] = Field(description="All metrics there are, for the choice of columns; at most 1000.")
    names: list[str] = Field(description="What a search can compare: metrics, best.metrics, settings; at most 1000.")
    next: str | None
    as_of: float


class RunParent(Answer):
    """What a run went on from."""

    run: str | None
    run_name: str
    checkpoint: str
    step: int | None


class NextSave(Answer):
    """When the next checkpoint is to be expected, by the pace of the latest."""

    step: int
    eta: float | None = Field(description="When, in epoch seconds; null if the run does not move.")


class SaveUnderWay(Answer):
    """That a save is being written now."""

    step: int | None
    done: float | None


class RunTabs(Answer):
    """What else there is to see of a run."""

    memory: bool
    loss_scale: bool


class RunDetail(ListedRun):
    """One run, whole."""

    config: dict[str, Any]
    parent: RunParent | None
    next_save: NextSave | None
    saving: SaveUnderWay | None
    has: RunTabs
    metric_names: list[str]
