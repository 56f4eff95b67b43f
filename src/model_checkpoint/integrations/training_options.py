"""Training options: what can be chosen for a run, of whatever trainer, and what is refused before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.storage.locate import Root


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """What every trainer's run is told."""

    root: Root
    every: int | None
    keep: Sequence[Keeper]
    catalog: Any
    grace: float
    deadline: float
    unit: str = "steps"  # what ``every`` counts

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        require_every(self.every, of=self.unit)
        require_catalog(self.catalog)


def require_every(every: Any, *, of: str) -> None:
    """Refuse what is no distance between two saves, counted in ``of``.

    Example:
        >>> require_every(None, of="steps")
        >>> require_every(0, of="steps")
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: every must be a whole number of steps above 0, or None, got 0
    """
    if every is not None and (not isinstance(every, int) or every < 1):
        raise OptionInvalid(f"every must be a whole number of {of} above 0, or None, got {every!r}")


def require_catalog(catalog: Any) -> None:
    """Refuse what is no catalog.

    Example:
        >>> require_catalog(5)
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: catalog must be the URL of a database, e.g. 'sqlite:///runs.db', ...
    """
    if not (catalog is None or isinstance(catalog, str) or hasattr(catalog, "log_metrics")):
        raise OptionInvalid(
            "catalog must be the URL of a database, e.g. 'sqlite:///runs.db', or an ExperimentTracker, got a "
            f"{type(catalog).__qualname__}"
        )
