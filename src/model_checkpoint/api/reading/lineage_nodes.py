"""Lineage nodes: where runs came from, and what each changed of the settings of its parent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from model_checkpoint.api.answers.plain_values import plain_of
from model_checkpoint.api.library.shelves import Library, Shelf
from model_checkpoint.api.reading.run_extras import settings_of
from model_checkpoint.api.reading.run_lines import health_word
from model_checkpoint.api.reading.run_status import first_steps, judge
from model_checkpoint.database import Checkpoint, LineageEdge, RunOverview
from model_checkpoint.database.records import CheckpointPlace
from model_checkpoint.plan.run_query import flattened

_MOST_RUNS, _MOST_MARKS = 2000, 60
_ABSENT = object()


def list_lineage(library: Library, experiment: str, ids: Sequence[str] = ()) -> list[dict[str, Any]]:
    """A node for every run of an experiment, or of all, the earliest first; or for ``ids`` and what they came from."""
    return [node for shelf in library.shelves() for node in _of_shelf(shelf, experiment, ids)]


def _of_shelf(shelf: Shelf, experiment: str, ids: Sequence[str]) -> list[dict[str, Any]]:
    connection, now = shelf.connection, shelf.connection.now()
    resumed = {edge.child: edge for edge in connection.resumptions()}  # of several the last, since they are by age
    mine = _with_parents(shelf, ids, resumed) if ids else None
    around = None if mine is None else _with_parents(shelf, mine, resumed)
    every = {one.experiment.id: one for one in connection.overviews(around)}
    wanted = [one for id, one in every.items() if mine is None or id in mine]
    wanted = [one for one in wanted if not experiment or one.experiment.project_name == experiment]
    wanted = sorted(wanted, key=lambda one: (one.experiment.start_time, one.experiment.id))[:_MOST_RUNS]
    runs = [one.experiment.id for one in wanted]
    origins = {row.id: row for row in _origins(shelf, runs, resumed)}
    places = shelf.connection.checkpoint_places(runs)
    marks, first = _marks(places, {edge.parent for edge in resumed.values()}), first_steps(places)
    return [
        _node(one, every, resumed.get(one.experiment.id), origins, now)
        | {"first_step": first.get(one.experiment.id), "checkpoints": marks.get(one.experiment.id, [])}
        for one in wanted
    ]


def _origins(shelf: Shelf, runs: Collection[str], resumed: Mapping[str, LineageEdge]) -> list[Checkpoint]:
    """The checkpoints that runs went on from."""
    return shelf.connection.get_checkpoints([resumed[run].parent for run in runs if run in resumed])


def _with_parents(shelf: Shelf, runs: Collection[str], resumed: Mapping[str, LineageEdge]) -> set[str]:
    return {*runs, *(row.experiment_id for row in _origins(shelf, runs, resumed))}


def _marks(places: Sequence[CheckpointPlace], origins: set[str]) -> dict[str, list[dict[str, Any]]]:
    """Of each run the newest checkpoints, and those that are pinned or that others went on from, by step."""
    found: dict[str, list[dict[str, Any]]] = {}
    counts: Counter[str] = Counter()
    for place in reversed(places):
        counts[place.run] += 1
        if counts[place.run] <= _MOST_MARKS or place.id in origins or place.pinned:
            mark = {"id": place.id, "step": place.step, "at": place.created_at, "pinned": place.pinned}
            found.setdefault(place.run, []).append({**mark, "health": health_word(place.health)})
    return {run: marks[::-1] for run, marks in found.items()}


def _node(
    run: RunOverview,
    every: Mapping[str, RunOverview],
    edge: LineageEdge | None,
    origins: Mapping[str, Checkpoint],
    now: float,
) -> dict[str, Any]:
    row = run.experiment
    origin = None if edge is None else origins.get(edge.parent)
    parent = None if origin is None or origin.experiment_id == row.id else every.get(origin.experiment_id)
    return {
        "run": row.id,
        "name": row.name,
        "experiment": row.project_name,
        "status": judge(run, now).status.value,
        "parent": None if parent is None else parent.experiment.id,
        "checkpoint": None if edge is None else edge.parent,
        "step": None if edge is None else edge.step,
        "last_step": run.step,
        "started": row.start_time or None,
        "changed": {} if parent is None else changed_settings(settings_of(parent), settings_of(run)),
    }


def changed_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Settings that differ, each with what it was and what it is; None where a side has none.

    Example:
        >>> changed_settings({"lr": 0.1, "seed": 1}, {"lr": 0.2, "seed": 1, "warmup": 10})
        {'lr': [0.1, 0.2], 'warmup': [None, 10]}
    """
    old, new = flattened(before), flattened(after)
    return {
        name: [plain_of({name: side.get(name)})[name] for side in (old, new)]
        for name in dict.fromkeys([*old, *new])
        if old.get(name, _ABSENT) != new.get(name, _ABSENT)
    }
