"""Retiring: which checkpoints of a run go to make room, told with reasons before it is done.

Only checkpoints of that run are looked at, each by its id; the new one is committed and recorded before an old goes.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from model_checkpoint.checkpoint.catalog.best_choice import criteria_of, measures_of, rank_of
from model_checkpoint.checkpoint.keeping.removal import RETENTION, remove
from model_checkpoint.checkpoint.keeping.run_policies import declare_policy
from model_checkpoint.checkpoint.manager_options import ManagerOptions
from model_checkpoint.checkpoint.retention.candidates import Candidate, read_candidates
from model_checkpoint.checkpoint.retention.keepers import KeepWithin, best, last
from model_checkpoint.checkpoint.retention.lineup import Keeper
from model_checkpoint.checkpoint.retention.retention_plan import RetentionPlan, plan_retention
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.database.catalog.checkpoint_columns import COMMITTED
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.engine.root.marks import NO_MARKS, Marks, read_marks
from model_checkpoint.hooks import HookEvent

log = logging.getLogger("model_checkpoint.manager")

_DAMAGED = ("damaged", "missing")


def retire(services: Services, experiment_id: str) -> RetentionPlan | None:
    """Drop what no keeper of this manager claims, and let hooks with rules of their own have their turn."""
    beyond = _room(services.options)
    crowd = [] if beyond is None else _rows_here(services, experiment_id, beyond=beyond)
    keepers = _keepers(services.options, crowd) if crowd else []
    if crowd or beyond is None:
        declare_policy(services, experiment_id, keepers)
    return carry_out_plan(services, experiment_id, _plan(services, crowd, keepers) if crowd else None)


def plan_run(services: Services, experiment_id: str, keep: Sequence[Keeper] | None = None) -> RetentionPlan:
    """What would go and what would stay, and why; nothing is removed."""
    rows = _rows_here(services, experiment_id)
    return _plan(services, rows, _keepers(services.options, rows) if keep is None else keep)


def _plan(services: Services, rows: Sequence[Checkpoint], keepers: Sequence[Keeper]) -> RetentionPlan:
    marks = read_marks(services.store)
    candidates = [candidate_of(row, marks.get(row.id, NO_MARKS)) for row in rows]
    if any(isinstance(keeper, KeepWithin) for keeper in keepers):  # bytes count once, however many share them
        exact = {one.id: one.files for one in read_candidates(services.store)}
        candidates = [dataclasses.replace(one, files=exact.get(one.id, one.files)) for one in candidates]
    return plan_retention(candidates, keepers, root=services.store.url)


def carry_out_plan(services: Services, experiment_id: str, plan: RetentionPlan | None) -> RetentionPlan | None:
    """Remove what ``plan`` drops, oldest first, unless it was pinned since."""
    result = services.fire(HookEvent.BEFORE_RETENTION_POLICY, experiment_id=experiment_id, plan=plan)
    if result is not None:
        result.raise_if_vetoed()
    done = () if plan is None or not plan.dropped else _removed(services, experiment_id, plan)
    if done:
        with services.failures.tolerated("trash"):
            services.sweeper.sweep_if_due()
    services.fire(HookEvent.AFTER_RETENTION_POLICY, experiment_id=experiment_id, plan=plan, removed=done)
    return None if plan is None else dataclasses.replace(plan, done=done)


def _removed(services: Services, experiment_id: str, plan: RetentionPlan) -> tuple[str, ...]:
    found = [services.catalog.connection.get_checkpoint(one.candidate.id) for one in reversed(plan.dropped)]
    doomed = [one for one in found if one is not None and _is_here(services, one, experiment_id)]
    marks = read_marks(services.store)
    return tuple(
        remove(services, row, action=RETENTION, plan_id=plan.id).name for row in doomed if not _is_held(row, marks)
    )


def _is_here(services: Services, row: Checkpoint, experiment_id: str) -> bool:
    """Whether it is still there, and of this run and root: those it has elsewhere are kept by other rules."""
    return (row.state, row.experiment_id, row.root) == (COMMITTED, experiment_id, services.store.url)


def _rows_here(services: Services, experiment_id: str, *, beyond: int = 0) -> list[Checkpoint]:
    return services.catalog.connection.crowd(experiment_id, services.store.url, beyond=beyond)


def _is_held(row: Checkpoint, marks: Mapping[str, Marks]) -> bool:
    mine = marks.get(row.id, NO_MARKS)
    held = row.pinned or mine.pinned or bool(mine.unreadable)
    if held:
        log.warning("%s: is pinned, so it stays", row.file_path)
    return held


def _room(options: ManagerOptions) -> int | None:
    """How many may be there before anything can have to go; None if all stay."""
    if options.keep is not None:
        return 0
    return options.max_checkpoints if options.save_last or options.max_checkpoints is None else 1


def _keepers(options: ManagerOptions, rows: Sequence[Checkpoint]) -> list[Keeper]:
    """What the choices of a manager mean: the newest so many, and the best of each kind that was measured."""
    if options.keep is not None:
        return list(options.keep)
    most = options.max_checkpoints or len(rows) or 1
    keepers: list[Keeper] = [last(most if options.save_last else 1)]
    if options.save_best:
        kinds = {str(one): one for row in rows for one in criteria_of(row, options.best_metric).values()}
        measured = [text for text, one in kinds.items() if any(rank_of(one, row) is not None for row in rows)]
        keepers += [best(text) for text in sorted(measured)]
    return keepers


def candidate_of(row: Checkpoint, marks: Marks = NO_MARKS) -> Candidate:
    """A row as retention looks at it, with what is marked in the root."""
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
