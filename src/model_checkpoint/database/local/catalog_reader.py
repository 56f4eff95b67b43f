"""Catalog reader: what commands read from a catalog; a file and a whole connection answer alike, which a test holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # each question brings what it is answered with
    from model_checkpoint.database.event_records import AuditEntry, LineageEdge
    from model_checkpoint.database.records import Checkpoint, Page, RunHead
    from model_checkpoint.database.summed_records import MetricSummary, RunOverview, Series


class CatalogReader(Protocol):
    """The questions; :class:`~model_checkpoint.database.EnhancedDatabaseConnection` tells what each of them means."""

    def now(self) -> float:
        """The time by the clock of the database."""

    def overviews(self) -> list[RunOverview]:
        """Every run with what its checkpoints come to, the latest start first."""

    def run_heads(self, experiment_ids: Collection[str]) -> dict[str, RunHead]:
        """What runs are called, and the newest checkpoint of each."""

    def summaries(self, experiment_id: str | Sequence[str]) -> list[MetricSummary]:
        """Last, least and greatest value of every metric of one or several runs."""

    def metric_names(self) -> list[str]:
        """The names of all metrics that were ever measured."""

    def series(self, experiment_id: str, name: str, *, buckets: int | None = None) -> Series:
        """One series as columns, thinned to what a chart of so many columns shows."""

    def get_checkpoints(self, checkpoint_ids: Sequence[str]) -> list[Checkpoint]:
        """The checkpoints of these ids that are there, in this order."""

    def crowd(self, experiment_id: str, root: str, *, most: int | None = None) -> list[Checkpoint]:
        """The checkpoints that a run has in one root, newest first; none if there are more than ``most``."""

    def edges(self) -> list[LineageEdge]:
        """What came out of what, oldest first."""

    def beginnings(self, checkpoint_ids: Sequence[str]) -> dict[str, list[str]]:
        """The runs that were resumed from each of these checkpoints."""

    def savers(self, checkpoint_ids: Collection[str]) -> dict[str, str]:
        """Who saved these checkpoints."""

    def audit(
        self, *, subject: str | None = None, action: str | None = None, limit: int = 100, after: str = ""
    ) -> Page[AuditEntry]:
        """The log, the latest row first, a page at a time."""
