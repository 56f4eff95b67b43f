"""Catalog writer: what commands write to a catalog; a file and a connection leave the same, which a test holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from model_checkpoint.database.event_records import IntegrityRecord
from model_checkpoint.database.records import Checkpoint, CheckpointName, Experiment, Metric, Page

T = TypeVar("T")


class CatalogWriter(Protocol):
    """What can be written; :class:`~model_checkpoint.database.EnhancedDatabaseConnection` says what each means."""

    @property
    def database_url(self) -> str:
        """Which database this is, without its password."""

    def together(self, work: Callable[[], T], *, durable: bool = True) -> T:
        """Run calls as one transaction: all or none."""

    def get_checkpoint(self, checkpoint_id: str) -> Checkpoint | None:
        """One checkpoint, deleted or not."""

    def get_checkpoints(self, checkpoint_ids: Sequence[str]) -> list[Checkpoint]:
        """The checkpoints of these ids that are there, in this order."""

    def names_in(self, root: str) -> list[CheckpointName]:
        """What the checkpoints in a root are called, of whatever run."""

    def latest(self, experiment_id: str) -> Checkpoint | None:
        """The newest checkpoint of a run."""

    def page(self, experiment_id: str, *, limit: int = 100, after: str = "") -> Page[Checkpoint]:
        """Checkpoints of a run, newest first, a page at a time."""

    def best(self, experiment_id: str, metric: str, direction: str = "min", k: int = 1) -> list[Checkpoint]:
        """The ``k`` best checkpoints of a run by a metric."""

    def get_experiment(self, experiment_id: str) -> Experiment | None:
        """One run."""

    def save_experiment(self, experiment: Experiment) -> Experiment:
        """Store a run."""

    def update_experiment(self, experiment_id: str, *, start_time: float, step: int) -> Experiment:
        """Let a run have begun then, and have come so far."""

    def heartbeat(self, experiment_id: str, *, step: int | None = None, at: float | None = None) -> None:
        """Note that a run is alive."""

    def write_metrics(self, rows: Iterable[Metric]) -> int:
        """Put down points of any runs."""

    def save_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> int:
        """Store checkpoints, in place of what was stored under their ids."""

    def flag_best(self, experiment_id: str, kind: str, checkpoint_ids: Sequence[str]) -> None:
        """Let exactly these checkpoints of a run carry a best flag."""

    def mark_deleted(self, checkpoint_id: str, *, at: float | None = None) -> bool:
        """Mark a checkpoint deleted; says whether it was this call that did."""

    def undelete_checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """Bring a deleted checkpoint back into the lists."""

    def update_checkpoint(self, checkpoint_id: str, *, pinned: bool, tags: Sequence[str], notes: str) -> Checkpoint:
        """Let a checkpoint have these marks."""

    def record_integrity(self, record: IntegrityRecord) -> IntegrityRecord:
        """Note what a verification or a repair found."""

    def record_audit(
        self, action: str, subject: str = "", *, outcome: str = "ok", details: Mapping[str, Any] | None = None
    ) -> object:
        """Add one row to the log."""
