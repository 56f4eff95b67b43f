"""W&B tracker: a run of Weights & Biases, under the id it has here, so that it goes on after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model_checkpoint.database.records import Experiment
from model_checkpoint.tracking.bridges.required_package import required_package
from model_checkpoint.tracking.metric_queue import Logged

STEP = "trainer/global_step"  # as other loggers call it


class WandbTracker:
    """Steps are a metric of their own: W&B's would drop whatever is logged for an earlier step, as after a resume.

    Args:
        **options: Of ``wandb.init``, such as ``entity``, ``mode`` or ``dir``.
    """

    name = "wandb"

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._live: Any = None

    def require(self) -> None:
        """Import it."""
        required_package("wandb")

    def begin(self, run: Experiment) -> None:
        """Begin the run or go on with it, beside any run the program itself has begun."""
        import wandb

        given = {
            "project": run.project_name,
            "name": run.name,
            "id": run.id,
            "resume": "allow",
            "reinit": "create_new",
            **self._options,
        }
        live = wandb.init(**given)
        live.define_metric(STEP)
        live.define_metric("*", step_metric=STEP, step_sync=True)
        self._live = live

    def describe(self, run: Experiment) -> None:
        """Settings, words and notes."""
        self._live.config.update(dict(run.config), allow_val_change=True)
        self._live.tags, self._live.notes = tuple(run.tags), run.notes

    def log(self, calls: Sequence[Logged]) -> list[str]:
        """Hand metrics to its own process, which brings them on."""
        for _, step, values in calls:
            self._live.log({**values, STEP: step})
        return []

    def end(self, run: Experiment) -> None:
        """Wait for its process, and say how the run ended."""
        self._live.finish(exit_code=0 if run.status == "completed" else 1)
