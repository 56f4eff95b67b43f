"""Kept reasons: why each checkpoint stays, for every door that tells it: lists, details, command line.

What its row says (the newest, a best flag, a pin, a tag, a run that went on from it), then what the keepers say by
which its run is pruned where it lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from model_checkpoint.checkpoint.catalog.best_choice import measures_of
from model_checkpoint.checkpoint.keeping.run_policies import policies_in_force, policy_in_force
from model_checkpoint.database.local.catalog_reader import CatalogReader
from model_checkpoint.database.records import COMMITTED, Checkpoint
from model_checkpoint.errors import OptionInvalid

_MOST_PLANNED = 2000  # checkpoints of a run that keepers are asked about to say why some of them stay
_FLAGS = {"is_best_loss": "loss", "is_best_val_loss": "val_loss", "is_best_metric": "metric"}
_NEWEST = "the newest"  # which is told of every newest one, whatever the policy


class KeptReason(msgspec.Struct, frozen=True):
    """A rule that speaks for keeping a checkpoint, and what it says of this one."""

    rule: str
    why: str


def kept_reasons(connection: CatalogReader, rows: Sequence[Checkpoint]) -> dict[str, tuple[KeptReason, ...]]:
    """The reasons of each of ``rows``, by its id; none for one that the next prune would take.

    Keepers are asked about a run of at most 2,000 checkpoints, and not where one of them is code or two checkpoints
    have one name, as only rows of other tools do.

    Example:
        >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
        >>> with EnhancedDatabaseConnection("sqlite://") as db:
        ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
        ...     for n in range(3):
        ...         _ = db.save_checkpoint(Checkpoint(id=f"c{n}", name=f"c{n}", experiment_id="r1", step=n))
        ...     _ = db.record_audit("policy", "r1", details={"root": "", "keep": ["every:2"]})
        ...     [(id, [one.rule for one in found]) for id, found in kept_reasons(db, db.page("r1").items).items()]
        [('c2', ['newest', 'every 2 steps']), ('c1', []), ('c0', ['every 2 steps'])]
    """
    heads = connection.run_heads({row.experiment_id for row in rows})
    begun = connection.beginnings([row.id for row in rows]) if rows else {}
    places = dict.fromkeys((row.experiment_id, row.root) for row in rows if row.state == COMMITTED)
    claims: dict[str, tuple[KeptReason, ...]] = {}
    for run, root in places:
        claims |= _claims(connection, run, root, policy_in_force(connection, run, root))
    found: dict[str, tuple[KeptReason, ...]] = {}
    for row in rows:
        head = heads.get(row.experiment_id)
        newest = head is not None and head.newest == row.id
        found[row.id] = (*_facts(row, begun.get(row.id, ()), newest=newest), *claims.get(row.id, ()))
    return found


def _facts(row: Checkpoint, begun: Sequence[str], *, newest: bool) -> Iterator[KeptReason]:
    """What its row and the edges from it tell."""
    if newest:
        yield KeptReason("newest", "the newest of its run")
    measures = measures_of(row)
    for flag, name in _FLAGS.items():
        if getattr(row, flag):
            value = measures.get(name)
            yield KeptReason(f"best({name})", f"best {name}" if value is None else f"best {name} {value:.6g}")
    if row.pinned:
        yield KeptReason("pinned", "somebody pinned it")
    for tag in row.tags:
        yield KeptReason("tagged", tag)
    for run in begun:
        yield KeptReason("parent", f"run {run} went on from it")


def kept_by_policies(connection: CatalogReader, run: str | None = None) -> set[str]:
    """The ids of all that the keepers in force speak for, of a run or of all.

    Example:
        >>> from model_checkpoint.database import EnhancedDatabaseConnection
        >>> with EnhancedDatabaseConnection("sqlite://") as db:
        ...     kept_by_policies(db)
        set()
    """
    policies = policies_in_force(connection, run).items()
    return {id for (of, root), words in policies for id, why in _claims(connection, of, root, words).items() if why}


def _claims(connection: CatalogReader, run: str, root: str, words: Sequence[str]) -> dict[str, tuple[KeptReason, ...]]:
    """What the keepers in force say of all that a run has in a root; nothing where nobody prunes it."""
    crowd = connection.crowd(run, root, most=_MOST_PLANNED) if words else []
    if not crowd:
        return {}
    # brought in only where somebody prunes: most who ask are commands, and they begin anew each time
    from model_checkpoint.checkpoint.keeping.present_rows import candidate_of
    from model_checkpoint.checkpoint.retention.keeper_words import parse_keeper
    from model_checkpoint.checkpoint.retention.retention_plan import plan_retention

    candidates = [candidate_of(row) for row in crowd]
    try:
        plan = plan_retention(candidates, [parse_keeper(word) for word in words], root=root)
    except OptionInvalid:
        return {}
    return {one.candidate.id: tuple(_read(one.reasons)) for one in plan.kept}


def _read(reasons: Sequence[str]) -> Iterator[KeptReason]:
    for reason in reasons:
        rule, _, why = reason.partition(": ")
        if why and rule != _NEWEST:
            yield KeptReason(rule, why)
