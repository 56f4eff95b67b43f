"""Records: what the catalog knows, as values. Times are seconds since 1970, UTC.

Knows no SQL. Numbers come back exactly, NaN and infinities included; of lists and tuples inside ``config`` and
``metadata`` lists come back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:  # only series have arrays
    import numpy as np
    from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSummary:
    """All points of one series in one row, so that a list of runs reads no points; NaN counts, but is no extreme."""

    experiment_id: str
    metric_name: str
    count: int
    nan_count: int
    last: float
    last_step: int
    last_at: float
    min: float | None  # None: every point is NaN
    min_step: int | None
    max: float | None
    max_step: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """The points of one series as columns, by step and time.

    Example:
        >>> import numpy as np
        >>> len(Series(np.array([1, 2]), np.array([0.0, 0.0]), np.array([0.5, 0.4])))
        2
    """

    steps: NDArray[np.int64]
    timestamps: NDArray[np.float64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True, eq=False)
class SeriesWindow:
    """A series as a chart draws it: of each column the last place, least, greatest and last value.

    Where all values of a column are NaN or infinite, the least and the greatest are NaN.
    """

    x: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    last: NDArray[np.float64]
    count: int  # points it was made from

    def __len__(self) -> int:
        return len(self.x)


class CheckpointMark(NamedTuple):
    """What a list of runs says about one checkpoint."""

    id: str
    step: int
    created_at: float
    health: str


class CheckpointName(NamedTuple):
    """What one checkpoint is called, and whose it is."""

    id: str
    run: str
    name: str  # of the folder


class CheckpointPlace(NamedTuple):
    """Where one checkpoint lies on the track of its run."""

    run: str
    id: str
    step: int
    created_at: float
    health: str
    pinned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOverview:
    """A run, and what its checkpoints come to; ``safe`` is the newest that is not known to be damaged."""

    experiment: Experiment
    checkpoints: int = 0
    total_bytes: int = 0
    unique_bytes: int = 0
    newest: CheckpointMark | None = None
    safe: CheckpointMark | None = None

    @property
    def step(self) -> int:
        """How far it is: what it told, or what the newest checkpoint holds of one that tells nothing but saves."""
        return self.experiment.step or (0 if self.newest is None else self.newest.step)


class RunHead(NamedTuple):
    """What a run is called, and the id of its newest checkpoint."""

    name: str
    project_name: str
    newest: str | None


class RunPulse(NamedTuple):
    """What moves when anything about a run does."""

    status: str
    started: float
    last_seen: float | None
    last_step_at: float | None
    words: str  # its name, tags and notes, as they are stored
    step: int | None
    points: int
    last_step: int | None
    checkpoints: int
    saved: tuple[float, float, float, int]  # the latest save, deletion and verification; how many are pinned
    damaged: int
    checkpoint_words: int  # of all tags and notes of its checkpoints; differs when one of them does


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSpace:
    """What a run holds in a root."""

    root: str
    run: str
    checkpoints: int
    total_bytes: int
    unique_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDay:
    """What one day brought to a root, and took from it."""

    root: str
    start: float
    saved_bytes: int
    deleted_bytes: int


class RecentSave(NamedTuple):
    """One of the latest saves of a root."""

    root: str
    id: str
    step: int
    created_at: float
    nbytes: int  # that no other checkpoint has


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedAges:
    """How many checkpoints were last verified within a day, a week, longer ago or never; damaged ones apart."""

    day: int = 0
    week: int = 0
    older: int = 0
    never: int = 0
    damaged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentStatistics:
    """What one run has left so far."""

    experiment_id: str
    checkpoints: int
    deleted_checkpoints: int
    total_bytes: int  # of the files of checkpoints that are not deleted
    unique_bytes: int  # of those, what is not shared with another one; counts whole files where nobody counted
    first_step: int | None
    last_step: int | None
    best_loss: float | None
    best_val_loss: float | None
    metrics: Sequence[MetricSummary]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEdge:
    """``child`` came out of ``parent``: a checkpoint out of a run, a run out of a checkpoint.

    Example:
        >>> LineageEdge(parent="c1", child="r2", kind="resumed", step=100).kind
        'resumed'
    """

    parent: str
    child: str
    kind: str  # "saved": run -> checkpoint; "resumed": checkpoint -> run; "derived": checkpoint -> checkpoint
    step: int | None = None  # where the child branches off
    created_at: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One thing that was done; never changed, never removed."""

    id: str
    at: float
    actor: str
    action: str  # save, load, delete, pin, restore, retention, repair, migrate, reindex, ...
    outcome: str
    subject: str = ""  # the id or name it was done to
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrityRecord:
    """What one verification of one checkpoint found.

    Example:
        >>> IntegrityRecord(checkpoint_id="c1", outcome="healthy", method="sha256").outcome
        'healthy'
    """

    checkpoint_id: str
    outcome: str  # "healthy", "damaged", "missing", "unreadable": the checkpoint's health from now on
    method: str = "sha256"
    checked_at: float = field(default_factory=time.time)
    seconds: float = 0.0
    bytes_read: int = 0
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    id: str = ""  # given by the catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionIntent:
    """A deletion, or a return, decided and not finished until ``finished_at``: whoever finds it open carries on."""

    id: str
    checkpoint_id: str
    action: str = "delete"
    plan_id: str = ""
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    created_at: float = field(default_factory=time.time)
    finished_at: float | None = None
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows, and the cursor for those that follow; an empty ``next`` says that there are none."""

    items: Sequence[T]
    next: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """A migration that is about to begin or has ended, as it is told to ``notify``."""

    moment: str  # "before" or "after"
    database: str  # without its password
    from_revision: str
    to_revision: str
    backup: str = ""
