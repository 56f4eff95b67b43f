"""Run extras: memory plan and loss scale, where a run has them.

The plan is looked for in the settings of the run (``log_hyperparameters({"memory_plan": model.plan.to_dict()})``) and
in the metadata of its newest checkpoint; the loss scale in the state of its newest checkpoint, where a mixed precision
optimizer keeps its timeline, and in a metric called ``loss_scale``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from model_checkpoint.api.answers.plain_values import number_of
from model_checkpoint.api.errors import NotFoundHere
from model_checkpoint.api.library.shelves import Shelf
from model_checkpoint.database import Checkpoint, RunOverview
from model_checkpoint.engine.root.listing import read_any_manifest
from model_checkpoint.errors import CheckpointException
from model_checkpoint.storage.locate import open_store
from model_checkpoint.tree.values.plain import plain_values
from model_checkpoint.tree.values.values import unpack_value

PLAN, SCALE = "memory_plan", "loss_scale"
_EVENT = re.compile(r"(?:.*\.)?timeline\.(\d+)\.(step|scale|event|detail)")
_SKIPPED = ("backed_off", "at_floor", "bad_loss")
_COLUMNS = 2000
_FATES = {"kept": "keep", "dropped": "drop", "offloaded": "offload", "recomputed": "recompute"}


def has_memory_plan(shelf: Shelf, run: RunOverview) -> bool:
    """Whether a plan is known."""
    return _plan(shelf, run) is not None


def has_loss_scale(shelf: Shelf, run: RunOverview) -> bool:
    """Whether anything is known of the loss scale."""
    measured = any(one.metric_name == SCALE for one in shelf.connection.summaries(run.experiment.id))
    row = _newest(shelf, run)
    return measured or bool(row is not None and _events(row.root, row.name, row.id))


def _newest(shelf: Shelf, run: RunOverview) -> Checkpoint | None:
    return None if run.safe is None else shelf.connection.get_checkpoint(run.safe.id)


def _plan(shelf: Shelf, run: RunOverview) -> Mapping[str, Any] | None:
    newest = _newest(shelf, run)
    places = (run.experiment.config, {} if newest is None else newest.metadata)
    found = next((place[PLAN] for place in places if isinstance(place.get(PLAN), Mapping)), None)
    return found if found is not None and {"budget_bytes", "stages", "front"} <= found.keys() else None


def describe_memory_plan(shelf: Shelf, run: RunOverview) -> dict[str, Any]:
    """The document of a memory plan: the trade of memory against time, and what becomes of each stage.

    Raises:
        NotFoundHere: The run has none.
    """
    plan = _plan(shelf, run)
    if plan is None:
        raise NotFoundHere(
            f"run {run.experiment.id!r}: no memory plan is known. Log it with "
            'tracker.log_hyperparameters({"memory_plan": model.plan.to_dict()}).'
        )
    points = [
        {"bytes": int(one["bytes"]), "slow": float(one["slowdown"]) - 1.0, "measured": bool(one["measured"])}
        for one in plan["front"]
    ]
    peak = int(plan.get("peak_bytes", 0))
    near = [abs(one["bytes"] - peak) for one in points]
    fates = _fates(plan)
    return {
        "budget": int(plan["budget_bytes"]),
        "floor": int(plan.get("floor_bytes", 0)),
        "plain": int(plan.get("plain_bytes", 0)),
        "peak": peak,
        "chosen": near.index(min(near)) if near else None,
        "pts": points,
        "stages": [
            {
                "name": str(stage["name"]),
                "act": int(stage.get("saved_bytes", 0)),
                "how": fates[number],
                "ms": float(stage.get("forward_seconds", 0.0)) * 1e3,
            }
            for number, stage in enumerate(plan["stages"])
        ],
    }


def _fates(plan: Mapping[str, Any]) -> list[str]:
    """What becomes of each stage, by the schedule as it was written down."""
    from model_checkpoint.recompute.auto.planning.plan import Plan  # brings torch along: only who asks pays for it

    try:
        return [_FATES[fate] for fate in Plan.from_dict(plan).fates()]
    except (CheckpointException, KeyError, TypeError, ValueError):
        return ["unknown"] * len(plan["stages"])


@lru_cache(maxsize=512)
def _events(root: str, name: str, id: str) -> tuple[tuple[tuple[str, Any], ...], ...]:
    """The events of a timeline in the state of a checkpoint, each as pairs; none if there is no such state here."""
    del id  # a name may be given anew; an id never is
    if not root or not name:
        return ()
    try:
        tree = read_any_manifest(open_store(root), name).tree
    except CheckpointException:
        return ()
    found: dict[int, dict[str, Any]] = {}
    for leaf, node in plain_values(tree).items():
        match = _EVENT.fullmatch(leaf)
        if match is not None:
            found.setdefault(int(match[1]), {})[match[2]] = unpack_value(node)
    whole = [one for _, one in sorted(found.items()) if {"step", "scale", "event"} <= one.keys()]
    return tuple(tuple(one.items()) for one in whole)


def describe_loss_scale(shelf: Shelf, run: RunOverview) -> dict[str, Any]:
    """The document of a loss scale.

    Raises:
        NotFoundHere: Nothing is known of it.
    """
    if not has_loss_scale(shelf, run):
        raise NotFoundHere(
            f"run {run.experiment.id!r}: nothing is known of its loss scale. Save a MixedPrecisionOptimizer, or log a "
            f"metric called {SCALE}."
        )
    row = _newest(shelf, run)
    events = [
        {
            "step": int(one["step"]),
            "scale": number_of(float(one["scale"])),
            "event": str(one["event"]),
            "detail": str(one.get("detail", "")),
        }
        for one in map(dict, () if row is None else _events(row.root, row.name, row.id))
    ]
    window = shelf.connection.series_window(run.experiment.id, SCALE, columns=_COLUMNS)
    x = [int(place) for place in window.x.tolist()]
    y = [number_of(value) for value in window.last.tolist()]
    return {
        "checkpoint": "" if row is None else row.id,
        "step": run.experiment.step,
        "x": x or [one["step"] for one in events],
        "y": y or [one["scale"] for one in events],
        "skipped": [one for one in reversed(events) if one["event"] in _SKIPPED],
        "events": events,
    }
