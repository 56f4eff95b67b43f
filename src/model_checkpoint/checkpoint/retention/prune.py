"""Prune: the front door of retention: look at a root, plan, tell, do."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from model_checkpoint.checkpoint.retention.amounts import Age, as_seconds
from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.checkpoint.retention.candidates import Candidate, read_candidates
from model_checkpoint.checkpoint.retention.carry_out import carry_out, require_current
from model_checkpoint.checkpoint.retention.keepers import KeepNamed
from model_checkpoint.checkpoint.retention.retention_plan import DamagePolicy, RetentionPlan, plan_retention
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.option_checks import require
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.root.intents import Intent, close_intents, open_intents
from model_checkpoint.engine.root.listing import require_root
from model_checkpoint.errors import CheckpointException, OptionInvalid, PlanOutdated, WrongReference
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import Root, open_store

log = logging.getLogger("model_checkpoint.retention")


def prune(
    root: Root,
    keep: Keeper | str | Sequence[Keeper | str] | None = None,
    *,
    dry_run: bool = False,
    plan: RetentionPlan | str | None = None,
    damaged: DamagePolicy = "keep",
    grace: Age | None = None,
    progress: Listen = None,
) -> RetentionPlan:
    """Drop every checkpoint that no keeper claims, and tell for each why it stays or goes.

    ``dry_run=True`` only tells. ``plan=`` carries out what was told: a plan itself, or with the same ``keep`` its id;
    if the root has changed so that it would be something else, it is refused. Without either, what a killed prune left
    undone is finished. What is dropped can be brought back (:func:`undelete`) until ``grace`` is over (24 hours, unless
    said otherwise); what has been in the trash for longer is removed for good. ``damaged="drop"`` drops damaged
    checkpoints too. ``progress`` is called as checkpoints go; True shows a bar.

    Example:
        >>> import model_checkpoint as mc
        >>> for step in range(1, 7):
        ...     _ = mc.save("memory://doc-prune", {"a": step}, step=step, metrics={"val_loss": 1 / step})
        >>> plan = mc.prune("memory://doc-prune", keep=[mc.last(1), mc.every(3)], dry_run=True)
        >>> [one.name for one in plan.dropped]
        ['step-00000005', 'step-00000004', 'step-00000002']
        >>> mc.prune("memory://doc-prune", plan=plan).done
        ('step-00000002', 'step-00000004', 'step-00000005')
    """
    require(dry_run=dry_run, progress=progress)
    seconds = Graces().trash if grace is None else as_seconds(grace)
    store = open_store(root)
    require_root(store)
    begun = open_intents(store)
    decided = _decide(store, begun, keep=keep, plan=plan, damaged=damaged)
    if dry_run:
        return decided
    with listening(progress, "dropping") as emit:
        meter = Meter("prune", len(decided.dropped), emit, unit="checkpoints")
        done = carry_out(store, decided, meter.add, noted=keep is None and plan is None)
    close_intents(store, begun)  # finished, or given up by deciding anew
    log.info("%s: dropped %d of %d checkpoints by plan %s", store.url, len(done), len(decided.decisions), decided.id)
    return _swept(store, replace(decided, done=done), seconds)


def _decide(
    store: Store,
    begun: Sequence[Intent],
    *,
    keep: Keeper | str | Sequence[Keeper | str] | None,
    plan: RetentionPlan | str | None,
    damaged: DamagePolicy,
) -> RetentionPlan:
    candidates = read_candidates(store)
    if isinstance(plan, RetentionPlan):
        if keep is not None:
            raise OptionInvalid("a plan says already what to keep; give keep= or plan=, not both. Nothing was done.")
        if plan.root != store.url:
            raise PlanOutdated(f"{store.url}: the plan {plan.id} is of {plan.root}. Nothing was removed.", store.url)
        require_current(plan, candidates)
        return plan
    if keep is None:
        return _finishing(store, candidates, begun)
    decided = plan_retention(candidates, keep, damaged=damaged, root=store.url)
    if decided.unranked:  # a slip of the pen must not decide what is best
        raise WrongReference(f"{store.url}: {decided.unranked[0]} Nothing was removed.", store.url)
    if plan is not None and plan != decided.id:
        goes = ", ".join(one.name for one in decided.dropped) or "nothing"
        raise PlanOutdated(
            f"{store.url}: the plan is {decided.id} now, not {plan}: the root, the keepers or the time changed, and "
            f"now would go: {goes}. Nothing was removed; look again with a dry run.",
            store.url,
        )
    return replace(decided, warnings=(*decided.warnings, *(_cut_off(one) for one in begun)))


def _cut_off(intent: Intent) -> str:
    names = ", ".join(one.name for one in intent.deletions[:8])
    return f"plan {intent.plan} ({names}) was cut off; prune(root) without keep= finishes it, this one gives it up"


def _finishing(store: Store, candidates: Sequence[Candidate], begun: Sequence[Intent]) -> RetentionPlan:
    """The plan that drops what is left of those that were cut off, and keeps all else."""
    if not begun:
        raise OptionInvalid(
            "say what to keep, e.g. keep=[mc.last(3), mc.best('val_loss', 2)], or give a plan=; there is none to "
            "finish. Nothing was done."
        )
    doomed = {(one.name, one.id) for intent in begun for one in intent.deletions}
    stays = frozenset(one.name for one in candidates if (one.name, one.id) not in doomed)
    return plan_retention(candidates, [KeepNamed(stays)], damaged="drop", root=store.url)


def _swept(store: Store, plan: RetentionPlan, grace: float) -> RetentionPlan:
    """Give back what has been in the trash for long enough; that it fails now is told, and no reason to fail."""
    try:
        swept = store.sweep(replace(Graces(), trash=grace))
    except CheckpointException as error:
        log.warning("%s: the trash could not be cleared: %s", store.url, error)
        return replace(plan, warnings=(*plan.warnings, f"the trash could not be cleared: {error}"))
    return replace(plan, swept_bytes=swept.nbytes)
