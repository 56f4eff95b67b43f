"""Run detail: one run, whole."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

from model_checkpoint.api.answers.plain_values import plain_of
from model_checkpoint.api.answers.run_answers import StatusWord
from model_checkpoint.api.library.run_titles import UNTITLED, titles_in
from model_checkpoint.api.library.shelves import Library, Shelf
from model_checkpoint.api.reading.run_extras import has_loss_scale, has_memory_plan, settings_of
from model_checkpoint.api.reading.run_lines import RunCandidate, lines_of
from model_checkpoint.api.reading.run_status import begun_at, judge
from model_checkpoint.database import RunOverview
from model_checkpoint.errors import CheckpointException
from model_checkpoint.options import Graces
from model_checkpoint.storage import LocalStore, open_store

_LATEST = 6  # checkpoints that make the pace


def describe_run(library: Library, run_id: str) -> dict[str, Any]:
    """The document of one run."""
    shelf, overview = library.run(run_id)
    connection, now = shelf.connection, shelf.connection.now()
    summaries = {one.metric_name: one for one in connection.summaries(run_id)}
    newest = overview.newest
    actor = connection.savers([newest.id]).get(newest.id, "") if newest is not None else ""
    begun = begun_at(shelf, [overview]).get(run_id, 0)
    run = RunCandidate(shelf, overview, judge(overview, now), actor, summaries, begun)
    (line,) = lines_of([run], sorted(summaries), now)
    return {
        **line,
        "config": plain_of(settings_of(overview)),
        "parent": _parent(shelf, run_id),
        "next_save": _next_save(shelf, run, line["steps_per_s"], now),
        "saving": _saving(shelf, overview) if run.verdict.status is StatusWord.ALIVE else None,
        "has": {"memory": has_memory_plan(shelf, overview), "loss_scale": has_loss_scale(shelf, overview)},
        "metric_names": sorted(summaries),
    }


def _parent(shelf: Shelf, run_id: str) -> dict[str, Any] | None:
    """The checkpoint a run was resumed from last, and whose that was, if it was another run's."""
    resumed = [edge for edge in shelf.connection.edges(run_id) if edge.kind == "resumed" and edge.child == run_id]
    for edge in reversed(resumed):
        row = shelf.connection.get_checkpoint(edge.parent)
        owner = row.experiment_id if row is not None else None
        if owner != run_id:
            title = titles_in(shelf.connection, {owner} if owner else set()).get(owner or "", UNTITLED)
            return {"run": owner, "run_name": title["run_name"], "checkpoint": edge.parent, "step": edge.step}
    return None


def _next_save(shelf: Shelf, run: RunCandidate, pace: float | None, now: float) -> dict[str, Any] | None:
    """By the strides of the latest checkpoints."""
    row = run.overview.experiment
    rows = shelf.connection.get_checkpoints_by_experiment(row.id, limit=_LATEST)
    strides = [later.step - sooner.step for later, sooner in pairwise(rows) if later.step > sooner.step]
    if not strides or run.verdict.status not in (StatusWord.ALIVE, StatusWord.STALLED):
        return None
    step = rows[0].step + round(median(strides))
    eta = None if pace is None else now + max(0.0, (step - row.step) / pace)
    return {"step": step, "eta": eta}


def _saving(shelf: Shelf, run: RunOverview) -> dict[str, Any] | None:
    """Whether a save is being written: an attempt whose owner lives. Which step it is of, its folder does not tell."""
    row = None if run.newest is None else shelf.connection.get_checkpoint(run.newest.id)
    store = None if row is None or not row.root else open_store(row.root)
    if not isinstance(store, LocalStore):
        return None
    try:
        alive = store.sweep(Graces(), dry_run=True).alive if store.exists() else ()
    except CheckpointException:
        return None
    return {"step": None, "done": None} if alive else None
