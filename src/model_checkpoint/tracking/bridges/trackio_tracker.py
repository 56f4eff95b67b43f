"""Trackio tracker: a run of Trackio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model_checkpoint.database.records import Experiment
from model_checkpoint.tracking.bridges.required_package import required_package
from model_checkpoint.tracking.metric_queue import Logged


class TrackioTracker:
    """Trackio tells runs apart by their names, so a part of the id is in the name there.

    Args:
        **options: Of ``trackio.init``, such as ``space_id`` or ``group``.
    """

    name = "trackio"

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._live: Any = None

    def require(self) -> None:
        """Import it."""
        required_package("trackio")

    def begin(self, run: Experiment) -> None:
        """Begin the run or go on with it; settings are taken here or never, and none whose name begins with ``_``."""
        import trackio

        config = {name: value for name, value in run.config.items() if not name.startswith("_")}
        name = f"{run.name}-{run.id[:8]}"
        given = {"project": run.project_name, "name": name, "config": config, "resume": "allow", "embed": False}
        self._live = trackio.init(**{**given, **self._options})

    def describe(self, run: Experiment) -> None:
        """It keeps the settings it began with, and knows neither words nor notes."""

    def log(self, calls: Sequence[Logged]) -> list[str]:
        """Leave metrics in its own queue."""
        for _, step, values in calls:
            self._live.log(values, step=step)
        return []

    def end(self, run: Experiment) -> None:
        """Wait for its queue."""
        self._live.finish()
