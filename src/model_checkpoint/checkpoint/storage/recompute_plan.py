"""Recompute plan: the plan by which a model trains within its memory travels with its checkpoints.

A resumed model gets it put in force again, without a sample and without profiling.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

PART = "recompute_plan"


def plan_of(model: Any) -> dict[str, Any] | None:
    """The plan that is in force for a model, as plain data; None if there is none.

    Example:
        >>> plan_of({"w": 1.0}) is None
        True
    """
    plan = getattr(model, "plan", None)
    if plan is None or "torch" not in sys.modules:
        return None
    from model_checkpoint.recompute.auto.planning.plan import Plan

    return plan.to_dict() if isinstance(plan, Plan) else None


def put_in_force(model: Any, data: Mapping[str, Any]) -> None:
    """Let ``model`` train by a plan that was saved; it must have the layers the plan was made for."""
    from model_checkpoint.recompute import auto_checkpoint

    auto_checkpoint(model, plan=dict(data))
