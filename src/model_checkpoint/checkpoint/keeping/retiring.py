"""Retiring: which checkpoints of a run go to make room, told with reasons before it is done.

Only checkpoints of that run are looked at, each by its id; the new one is committed and recorded before an old one goes.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from model_checkpoint.checkpoint.catalog.best_choice import all_rows, criteria_of, measures_of, rank_of
from model_checkpoint.checkpoint.keeping.removal import remove
from model_checkpoint.checkpoint.manager_options import ManagerOptions
from model_checkpoint.checkpoint.retention.candidates import Candidate, read_candidates
from model_checkpoint.checkpoint.retention.keepers import KeepWithin, best, last
from model_checkpoint.checkpoint.retention.lineup import Keeper
from model_checkpoint.checkpoint.retention.retention_plan import RetentionPlan, plan_retention
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.engine.root.marks import NO_MARKS, Marks, read_marks
from model_checkpoint.hooks import HookEvent

log = logging.getLogger("model_checkpoint.manager")

_DAMAGED = ("damaged", "missing")


def retire(services: Services, experiment_id: str) -> RetentionPlan | None:
    """Drop what no keeper of this manager claims; None if there is nothing to do."""
    if services.options.keep is None and not _is_crowded(services, experiment_id):
        return None
    plan = plan_run(services, experiment_id)
    return carry_out_plan(services, experiment_id, plan) if plan.dropped else plan


def plan_run(services: Services, experiment_id: str, keep: Sequence[Keeper] | None = None) -> RetentionPlan:
    """What would go and what would stay, and why; nothing is removed."""
    rows = list(all_rows(services.catalog.connection, experiment_id))
    keepers = _keepers(services.options, rows) if keep is None else keep
    marks = read_marks(services.store)
    candidates = [_candidate(row, marks.get(row.id, NO_MARKS)) for row in rows]
    if any(isinstance(keeper, KeepWithin) for keeper in keepers):  # bytes count once, however many share them
        exact = {one.id: one.files for one in read_candidates(services.store)}
        candidates = [dataclasses.replace(one, files=exact.get(one.id, one.files)) for one in candidates]
    return plan_retention(candidates, keepers, root=services.store.url)


def carry_out_plan(services: Services, experiment_id: str, plan: RetentionPlan) -> RetentionPlan:
    """Remove what ``plan`` drops, oldest first, unless it was pinned since."""
    result = services.fire(
        HookEvent.BEFORE_RETENTION_POLICY,
        experiment_id=experiment_id,
        plan=plan,
        dropped=[one.candidate.id for one in plan.dropped],
    )
    if result is not None:
        result.raise_if_vetoed()
    rows = {row.id: row for row in all_rows(services.catalog.connection, experiment_id)}
    marks = read_marks(services.store)
    doomed = [rows[one.candidate.id] for one in reversed(plan.dropped) if one.candidate.id in rows]
    done = [_retired(services, row, plan).name for row in doomed if not _is_held(row, marks)]
    services.fire(HookEvent.AFTER_RETENTION_POLICY, experiment_id=experiment_id, plan=plan, removed=tuple(done))
    return dataclasses.replace(plan, done=tuple(done))


def _retired(services: Services, row: Checkpoint, plan: RetentionPlan) -> Checkpoint:
    return remove(services, row, action="retention", plan_id=plan.id)


def _is_held(row: Checkpoint, marks: Mapping[str, Marks]) -> bool:
    mine = marks.get(row.id, NO_MARKS)
    held = row.pinned or mine.pinned or bool(mine.unreadable)
    if held:
        log.warning("%s: is pinned, so it stays", row.file_path)
    return held


def _is_crowded(services: Services, experiment_id: str) -> bool:
    most = services.options.max_checkpoints
    if most is None:
        return False
    return len(services.catalog.connection.get_checkpoints_by_experiment(experiment_id, limit=most + 1)) > most


def _keepers(options: ManagerOptions, rows: Sequence[Checkpoint]) -> list[Keeper]:
    """What the choices of a manager mean: the newest so many, and the best of each kind that was measured."""
    if options.keep is not None:
        return list(options.keep)
    keepers: list[Keeper] = [last(options.max_checkpoints or len(rows) or 1)]
    if options.save_best:
        kinds = {str(one): one for row in rows for one in criteria_of(row, options.best_metric).values()}
        measured = [text for text, one in kinds.items() if any(rank_of(one, row) is not None for row in rows)]
        keepers += [best(text) for text in sorted(measured)]
    return keepers


def _candidate(row: Checkpoint, marks: Marks) -> Candidate:
    nbytes = row.file_size if row.unique_bytes is None else row.unique_bytes
    return Candidate(
        id=row.id,
        name=row.name,
        step=row.step,
        committed_at=datetime.fromtimestamp(row.created_at, UTC),
        metrics=measures_of(row),
        tags=tuple(dict.fromkeys((*row.tags, *marks.tags))),
        pinned=row.pinned or marks.pinned,
        healthy=row.health not in _DAMAGED,
        files=((row.id, nbytes),),
        problem=row.health if row.health in _DAMAGED else "",
        held="its marks cannot be read" if marks.unreadable else "",
    )
