"""Retiring: which checkpoints of a run go to make room, told with reasons before it is done.

Only checkpoints of that run are looked at, each by its id; the new one is committed and recorded before an old goes.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence

from model_checkpoint.checkpoint.catalog.best_choice import best_first, criteria_of
from model_checkpoint.checkpoint.catalog.catalog_rows import rows_of_root
from model_checkpoint.checkpoint.keeping.present_rows import candidate_of, present_now, present_rows
from model_checkpoint.checkpoint.keeping.removal import RETENTION, remove
from model_checkpoint.checkpoint.keeping.run_policies import declare_policy
from model_checkpoint.checkpoint.manager_options import ManagerOptions
from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.checkpoint.retention.candidates import Candidate, read_candidates
from model_checkpoint.checkpoint.retention.carry_out import require_current
from model_checkpoint.checkpoint.retention.keeper_words import as_keepers
from model_checkpoint.checkpoint.retention.keepers import KeepWithin, best, last
from model_checkpoint.checkpoint.retention.retention_plan import RetentionPlan, plan_retention
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.database.errors import DatabaseFull
from model_checkpoint.database.records import COMMITTED, Checkpoint
from model_checkpoint.engine.root.marks import NO_MARKS, Marks, read_marks
from model_checkpoint.errors import PlanOutdated, WrongReference
from model_checkpoint.hooks import HookEvent
from model_checkpoint.plan import Ranking

log = logging.getLogger("model_checkpoint.manager")

UNRANKED = "ranking of what to keep"  # among the troubles of a manager


def retire(services: Services, experiment_id: str) -> RetentionPlan | None:
    """Drop what no keeper of this manager claims, and let hooks with rules of their own have their turn."""
    beyond = _room(services.options)
    crowd = [] if beyond is None else _rows_here(services, experiment_id, beyond=beyond)
    keepers = _keepers(services, experiment_id, crowd) if crowd else []
    if crowd or beyond is None:
        declare_policy(services, experiment_id, keepers)
    plan = _plan(services, crowd, keepers) if crowd else None
    if plan is not None and plan.unranked:
        _tell_unranked(services, plan)
    return carry_out_plan(services, experiment_id, plan)


def _tell_unranked(services: Services, plan: RetentionPlan) -> None:
    """A keeper that can rank nothing keeps all: said once aloud, counted each time, and no reason to fail a save."""
    said = WrongReference(f"{plan.root}: {plan.unranked[0]} As long as that is so, all are kept.", plan.root)
    services.failures.note(UNRANKED, said)


def plan_run(
    services: Services, experiment_id: str, keep: Keeper | str | Sequence[Keeper | str] | None = None
) -> RetentionPlan:
    """What would go and what would stay, and why, by what is in the catalog and in the root; nothing is removed."""
    rows = _known_here(services, experiment_id)
    keepers = _keepers(services, experiment_id, rows) if keep is None else as_keepers(keep)
    return plan_retention(present_rows(services.store, rows), keepers, root=services.store.url)


def _plan(services: Services, rows: Sequence[Checkpoint], keepers: Sequence[Keeper]) -> RetentionPlan:
    """By the rows alone, since every save asks: what was just saved is there, whatever became of others."""
    marks = read_marks(services.store)
    candidates = [candidate_of(row, marks.get(row.id, NO_MARKS)) for row in rows]
    if any(isinstance(keeper, KeepWithin) for keeper in keepers):  # bytes count once, however many share them
        exact = {one.id: one.files for one in read_candidates(services.store)}
        candidates = [dataclasses.replace(one, files=exact.get(one.id, one.files)) for one in candidates]
    return plan_retention(candidates, keepers, root=services.store.url)


def require_plan_holds(services: Services, experiment_id: str, plan: RetentionPlan) -> None:
    """Refuse a plan that was looked at and stands on what is no longer so, in the catalog or in the root."""
    root = services.store.url
    if plan.root != root:
        raise PlanOutdated(f"{root}: the plan {plan.id} is of {plan.root}. Nothing was removed.", root)
    rows = _known_here(services, experiment_id)
    require_current(plan, present_now(services.store, [one.name for one in plan.decisions], rows))


def carry_out_plan(services: Services, experiment_id: str, plan: RetentionPlan | None) -> RetentionPlan | None:
    """Remove what ``plan`` drops, oldest first, unless it was marked since."""
    result = services.fire(HookEvent.BEFORE_RETENTION_POLICY, experiment_id=experiment_id, plan=plan)
    if result is not None:
        result.raise_if_vetoed()
    done = () if plan is None or not plan.dropped else _removed(services, experiment_id, plan)
    if done:
        with services.failures.tolerated("trash"):
            services.sweeper.sweep_if_due()
        services.catalog.catch_up()
    services.fire(HookEvent.AFTER_RETENTION_POLICY, experiment_id=experiment_id, plan=plan, removed=done)
    return None if plan is None else dataclasses.replace(plan, done=done)


def _removed(services: Services, experiment_id: str, plan: RetentionPlan) -> tuple[str, ...]:
    doomed = {one.candidate.id: one.candidate for one in reversed(plan.dropped)}
    rows = _rows_by_id(services, [*doomed])
    marks = read_marks(services.store)
    return tuple(
        remove(services, row, action=RETENTION, plan_id=plan.id, tags=doomed[row.id].tags).name
        for row in rows
        if _is_here(services, row, experiment_id) and not _is_marked(row, doomed[row.id], marks)
    )


def _is_here(services: Services, row: Checkpoint, experiment_id: str) -> bool:
    """Whether it is still there, and of this run and root: those it has elsewhere are kept by other rules."""
    return (row.state, row.experiment_id, row.root) == (COMMITTED, experiment_id, services.store.url)


def _rows_here(services: Services, experiment_id: str, *, beyond: int = 0) -> list[Checkpoint]:
    return services.catalog.connection.crowd(experiment_id, services.store.url, beyond=beyond)


def _known_here(services: Services, experiment_id: str) -> list[Checkpoint]:
    """The rows of a run, by the manifests where the disk is so full that a catalog on it cannot even be read."""
    try:
        return _rows_here(services, experiment_id)
    except DatabaseFull as error:
        services.catalog.note_away(error)
        return [row for row in rows_of_root(services.store) if row.experiment_id == experiment_id]


def _rows_by_id(services: Services, ids: Sequence[str]) -> list[Checkpoint]:
    try:
        return services.catalog.connection.get_checkpoints(ids)
    except DatabaseFull as error:
        services.catalog.note_away(error)
        known = {row.id: row for row in rows_of_root(services.store)}
        return [known[id] for id in ids if id in known]


def _is_marked(row: Checkpoint, then: Candidate, marks: Mapping[str, Marks]) -> bool:
    """Whether somebody has pinned or tagged it since the plan was made."""
    mine = marks.get(row.id, NO_MARKS)
    marked = row.pinned or mine.pinned or bool(mine.unreadable) or not {*row.tags, *mine.tags} <= {*then.tags}
    if marked:
        log.warning("%s: was marked since the plan was made, so it stays", row.file_path)
    return marked


def _room(options: ManagerOptions) -> int | None:
    """How many may be there before anything can have to go; None if all stay."""
    if options.keep is not None:
        return 0
    return options.max_checkpoints if options.save_last or options.max_checkpoints is None else 1


def _keepers(services: Services, experiment_id: str, rows: Sequence[Checkpoint]) -> list[Keeper]:
    """What the choices of a manager mean: the newest so many, and the best of each kind that was measured."""
    options = services.options
    if options.keep is not None:
        return [*as_keepers(options.keep)]
    most = options.max_checkpoints or len(rows) or 1
    keepers: list[Keeper] = [last(most if options.save_last else 1)]
    if options.save_best:
        kinds = _kinds(rows, services.catalog.criterion(experiment_id, options.best_metric))
        measured = [text for text, one in kinds.items() if best_first(rows, one)]
        keepers += [best(text) for text in sorted(measured)]
    return keepers


def _kinds(rows: Sequence[Checkpoint], best_metric: str | None) -> dict[str, Ranking]:
    """What the best are ranked by, by its text; several criteria by the text they were read from."""
    each = [one for row in rows for one in criteria_of(row, best_metric).values()]
    return {str(one) if len(one.criteria) == 1 or best_metric is None else best_metric: one for one in each}
