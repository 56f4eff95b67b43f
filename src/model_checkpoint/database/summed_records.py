"""Summed records: what many rows of the catalog come to, as values. Times are seconds since 1970, UTC.

Knows no SQL. A listing of checkpoints brings none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # only series have arrays
    import numpy as np
    from numpy.typing import NDArray

    from model_checkpoint.database.records import CheckpointMark, Experiment


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
