"""Carry out: drop what a plan says, so that a kill at any point can be finished or undone.

What is about to go is written down first, if it is more than one; then each goes to the engine's trash, the oldest
first, and at last the writing is removed. Before each it is looked at once more: whether it is still the very
checkpoint that was judged, and whether somebody has pinned or tagged it meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from model_checkpoint.checkpoint.retention.candidates import Candidate
from model_checkpoint.checkpoint.retention.retention_plan import Decision, RetentionPlan
from model_checkpoint.engine.root.delete import discard_exactly
from model_checkpoint.engine.root.intents import IntendedDeletion, Intent, close_intents, open_intent
from model_checkpoint.engine.root.marks import NO_MARKS, read_marks
from model_checkpoint.errors import CheckpointException, PlanOutdated
from model_checkpoint.storage.contract.store import Store

log = logging.getLogger("model_checkpoint.retention")


def carry_out(
    store: Store, plan: RetentionPlan, advance: Callable[[int], None], *, noted: bool = False
) -> tuple[str, ...]:
    """Move what ``plan`` drops to the trash; return the names that went. Those already gone are no error.

    ``advance`` is told of each that was looked at; ``noted`` says that it is all written down already, by a plan that
    was cut off.
    """
    doomed = [one.candidate for one in reversed(plan.dropped)]
    intent = Intent(plan=plan.id, deletions=tuple(IntendedDeletion(one.name, one.id) for one in doomed))
    written = not noted and len(doomed) > 1 and open_intent(store, intent)
    try:
        done = tuple(one.name for one in doomed if _drop(store, one, advance))
    except BaseException:
        if written:  # whoever learns of a failure decides what to do; only a death leaves the writing
            _give_up(store, intent)
        raise
    if written:
        close_intents(store, [intent])
    return done


def _give_up(store: Store, intent: Intent) -> None:
    try:
        close_intents(store, [intent])
    except CheckpointException as error:
        log.warning("%s: the plan %s stays written down: %s", store.url, intent.plan, error)


def _drop(store: Store, one: Candidate, advance: Callable[[int], None]) -> bool:
    advance(1)
    marks = read_marks(store, one.id).get(one.id, NO_MARKS) if one.id else NO_MARKS
    if marks.pinned or marks.unreadable or not {*marks.tags} <= {*one.tags}:
        log.warning("%s: %s was marked since the plan was made, so it stays", store.url, one.name)
        return False
    return discard_exactly(store, one.name, one.id)


def require_current(plan: RetentionPlan, candidates: Sequence[Candidate]) -> None:
    """Refuse a plan that stands on what is no longer so; what is new since does no harm, it is not in the plan."""
    now = {one.name: one for one in candidates}
    for decision in plan.decisions:
        changed = _change(decision, now.get(decision.name))
        if changed:
            raise PlanOutdated(
                f"{plan.root}: the plan {plan.id} no longer holds: {decision.name} {changed}. Nothing was removed; "
                "look at a new plan (a dry run), and carry out that one.",
                plan.root,
            )


def _change(decision: Decision, now: Candidate | None) -> str:
    """What happened to one checkpoint that a plan speaks of; empty if nothing that matters."""
    then = decision.candidate
    if now is None:
        return "is gone, and it was to be kept" if decision.keep and then.usable else ""
    if now.id != then.id:
        return "is another checkpoint now"
    if decision.keep:
        return f"is damaged now ({now.problem})" if then.healthy and not now.healthy else ""
    if now.pinned or now.held or not {*now.tags} <= {*then.tags}:
        return "was pinned or tagged since"
    return "" if now.healthy or not then.healthy else f"is damaged now ({now.problem})"
