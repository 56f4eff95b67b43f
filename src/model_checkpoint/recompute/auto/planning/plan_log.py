"""Plan log: where a plan is told, beside the model that trains by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from model_checkpoint.recompute.auto.planning.plan import Plan

SETTING = "memory_plan"  # the name it has among the settings of a run


class PlanLog(Protocol):
    """A run that takes settings, such as an ``ExperimentTracker``."""

    def log_hyperparameters(self, settings: Mapping[str, Any]) -> None:
        """Add to the settings of the run."""


def log_plan(run: PlanLog, plan: Plan) -> None:
    """Make a plan a setting of the run that trains by it."""
    run.log_hyperparameters({SETTING: plan.to_dict()})
