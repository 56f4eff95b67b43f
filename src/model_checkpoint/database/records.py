"""Records: runs, points and checkpoints of the catalog, as values. Times are seconds since 1970, UTC.

Knows no SQL. Numbers come back exactly, NaN and infinities included; of lists and tuples inside ``config`` and
``metadata`` lists come back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

COMMITTED, DELETED = "committed", "deleted"  # the states of a checkpoint
UNSAFE = ("damaged", "missing")  # health a resume does not start from


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One run.

    Example:
        >>> run = Experiment(id="r1", name="baseline", config={"lr": 0.1})
        >>> run.status, run.step
        ('running', 0)
    """

    id: str
    name: str
    project_name: str = "default"
    status: str = "running"
    start_time: float = field(default_factory=time.time)
    end_time: float | None = None
    tags: Sequence[str] = ()
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    step: int = 0
    notes: str = ""
    last_seen: float | None = None  # by the clock of the database, as `EnhancedDatabaseConnection.now` tells it
    last_step_at: float | None = None  # when `step` last moved, by the same clock


class Metric(NamedTuple):
    """One point of one series; cheap to make, since a run makes millions.

    Example:
        >>> Metric("r1", "loss", 0.5, step=3).metric_value
        0.5
    """

    experiment_id: str
    metric_name: str
    metric_value: float
    step: int = 0
    timestamp: float | None = None  # None: the moment it is written


class Comparable(Protocol):
    """What checkpoints are compared by."""

    @property
    def id(self) -> str:
        """Decides among equals, last of all."""

    @property
    def step(self) -> int:
        """Decides among equals."""

    @property
    def created_at(self) -> float:
        """Decides among equals of one step."""

    @property
    def loss(self) -> float | None:
        """A measure of its own."""

    @property
    def val_loss(self) -> float | None:
        """Another."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """All others, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One saved checkpoint; the manifest in its folder is the truth, this is the index.

    Example:
        >>> Checkpoint(id="c1", experiment_id="r1", step=10, metrics={"val_loss": 0.3}).state
        'committed'
    """

    id: str
    experiment_id: str
    epoch: int | None = None
    step: int = 0
    checkpoint_type: str = "manual"
    file_path: str = ""
    file_size: int = 0
    checksum: str = ""
    model_name: str = ""
    loss: float | None = None
    val_loss: float | None = None
    notes: str = ""
    is_best_loss: bool = False
    is_best_val_loss: bool = False
    is_best_metric: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    created_at: float = field(default_factory=time.time)
    name: str = ""  # of the folder
    root: str = ""  # where the folder lies: a path or a URL
    backend: str = "native"
    parts: Sequence[str] = ()  # top-level keys of the state
    tags: Sequence[str] = ()
    pinned: bool = False
    unique_bytes: int | None = None  # not shared with other checkpoints; None where nobody counted
    health: str = "unknown"  # or what the last `IntegrityRecord` said
    verified_at: float | None = None
    state: str = COMMITTED  # or DELETED: the row stays, for its history and to be brought back
    deleted_at: float | None = None


class CheckpointMark(NamedTuple):
    """What a list of runs says about one checkpoint."""

    id: str
    step: int
    created_at: float
    health: str


class RunHead(NamedTuple):
    """What a run is called, and the id of its newest checkpoint."""

    name: str
    project_name: str
    newest: str | None


class CheckpointPlace(NamedTuple):
    """Where one checkpoint lies on the track of its run."""

    run: str
    id: str
    step: int
    created_at: float
    health: str
    pinned: bool


class CheckpointName(NamedTuple):
    """What one checkpoint is called, and whose it is."""

    id: str
    run: str
    name: str  # of the folder


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows, and the cursor for those that follow; an empty ``next`` says that there are none."""

    items: Sequence[T]
    next: str = ""
