"""Run extras: memory plan and loss scale, where a run has them.

The plan is looked for in the settings of the run, where ``auto_checkpoint(tracker=...)`` puts it, and in the state of
its newest checkpoint, whose part it may be (``{"plan": model.plan.to_dict(), ...}``); the loss scale in that state too,
where a mixed precision optimizer keeps its timeline, and in a metric called ``loss_scale``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from model_checkpoint.api.answers.plain_values import number_of
from model_checkpoint.api.errors import NotFoundHere
from model_checkpoint.api.library.shelves import Shelf
from model_checkpoint.database import Checkpoint, RunOverview
from model_checkpoint.engine.root.listing import read_any_manifest
from model_checkpoint.errors import CheckpointException
from model_checkpoint.manifest import Node
from model_checkpoint.recompute.auto.planning.plan_log import SETTING
from model_checkpoint.storage.locate import open_store
from model_checkpoint.tree.values.plain import plain_values

SCALE = "loss_scale"
_PLANNED = ("budget_bytes", "stages", "front")  # what a plan has, whatever else
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
    return measured or bool(_told(_newest(shelf, run)).events)


def settings_of(run: RunOverview) -> dict[str, Any]:
    """The settings of a run without the plan, which has a page of its own."""
    return {name: value for name, value in run.experiment.config.items() if name != SETTING}


def _newest(shelf: Shelf, run: RunOverview) -> Checkpoint | None:
    return None if run.safe is None else shelf.connection.get_checkpoint(run.safe.id)


def _plan(shelf: Shelf, run: RunOverview) -> Mapping[str, Any] | None:
    logged = run.experiment.config.get(SETTING)
    return logged if _is_plan(logged) else _told(_newest(shelf, run)).plan


def _is_plan(value: Any) -> bool:
    return isinstance(value, Mapping) and all(name in value for name in _PLANNED)


def describe_memory_plan(shelf: Shelf, run: RunOverview) -> dict[str, Any]:
    """The document of a memory plan: the trade of memory against time, and what becomes of each stage.

    Raises:
        NotFoundHere: The run has none.
    """
    plan = _plan(shelf, run)
    if plan is None:
        raise NotFoundHere(
            f"run {run.experiment.id!r}: no memory plan is known. Give its tracker to "
            "auto_checkpoint(..., tracker=tracker), or save model.plan.to_dict() as a part of its checkpoints."
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
    from model_checkpoint.recompute.auto.planning.plan import Plan  # few runs have one

    try:
        return [_FATES[fate] for fate in Plan.from_dict(plan).fates()]
    except (CheckpointException, KeyError, TypeError, ValueError):
        return ["unknown"] * len(plan["stages"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What the state of a checkpoint tells, apart from its tensors."""

    plan: Mapping[str, Any] | None = None
    events: tuple[tuple[tuple[str, Any], ...], ...] = ()  # of the loss scale, each as pairs


def _told(row: Checkpoint | None) -> _Told:
    return _Told() if row is None or not row.root or not row.name else _read(row.root, row.name, row.id)


@lru_cache(maxsize=512)
def _read(root: str, name: str, id: str) -> _Told:
    del id  # a name may be given anew; an id never is
    try:
        leaves = plain_values(read_any_manifest(open_store(root), name).tree)
        return _Told(plan=_plan_among(leaves, root, name), events=_events_among(leaves))
    except CheckpointException:
        return _Told()


def _plan_among(leaves: Mapping[str, Node], root: str, name: str) -> Mapping[str, Any] | None:
    """The part of a state that is a plan, if there is one."""
    for leaf in leaves:
        part, dot, field = leaf.partition(".")
        if dot and field == _PLANNED[0]:
            from model_checkpoint.engine.reading.load import load

            found = load(open_store(root), name=name, parts=part)[part]
            if _is_plan(found):
                return dict(found)
    return None


def _events_among(leaves: Mapping[str, Node]) -> tuple[tuple[tuple[str, Any], ...], ...]:
    """The events of the timeline of a loss scale in a state."""
    from model_checkpoint.tree.values.values import unpack_value  # brings NumPy

    found: dict[int, dict[str, Any]] = {}
    for leaf, node in leaves.items():
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
        for one in map(dict, _told(row).events)
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
