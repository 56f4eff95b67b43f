"""Other tracker: what a bridge asks of any tracker. All of it is called by one thread, one call after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from model_checkpoint.database.records import Experiment
from model_checkpoint.tracking.metric_queue import Logged


class OtherTracker(Protocol):
    """A tracker that metrics are written through to; whatever it raises counts as being away, and is tried again."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def require(self) -> None:
        """Import what is needed, before the training begins; ``OptionInvalid`` where it is not installed."""
        ...

    def begin(self, run: Experiment) -> None:
        """Open the run there, or go on with it if it is there already: by the id, not by the name."""
        ...

    def describe(self, run: Experiment) -> None:
        """Say what is known of the run, as it is now: settings, tags, notes."""
        ...

    def log(self, calls: Sequence[Logged]) -> Sequence[str]:
        """Write metrics; returns the name of each point that will never be taken, such as one with a bad name."""
        ...

    def end(self, run: Experiment) -> None:
        """Write what is on its way, and say how the run ended."""
        ...
