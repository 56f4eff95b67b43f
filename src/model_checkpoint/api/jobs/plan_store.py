"""Plan drawer: retention plans that were shown, until they are applied or too old; what was applied, until undone.

What was shown is what goes: a plan is applied by its id, after a look at whether it still holds. What went can be
brought back by its id, also by a server that was started since.
"""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from model_checkpoint import forks
from model_checkpoint.api.errors import NotFoundHere, StateConflict
from model_checkpoint.api.library.run_titles import UNTITLED, titles_in
from model_checkpoint.api.library.shelves import Library, Shelf
from model_checkpoint.checkpoint.retention.candidate_order import Keeper
from model_checkpoint.checkpoint.retention.carry_out import require_current
from model_checkpoint.checkpoint.retention.keeper_words import parse_keeper
from model_checkpoint.checkpoint.retention.retention_plan import RetentionPlan
from model_checkpoint.errors import CheckpointException, PlanOutdated
from model_checkpoint.options import Graces
from model_checkpoint.performance.lru import LRUCache

PLAN_SECONDS, MOST_PLANS = 3600.0, 50
GRACE = Graces().trash
_UNDO = "undo"


@dataclass(frozen=True, slots=True)
class _PlanPart:
    """The plan of one run in one root."""

    shelf: Shelf
    run: str
    root: str
    plan: RetentionPlan


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A plan as it was shown, and the keepers it was made by."""

    id: str
    keepers: tuple[Keeper, ...]
    parts: tuple[_PlanPart, ...]
    until: float


class PlanDrawer:
    """Keeps plans between looking and doing."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._plans = LRUCache(MOST_PLANS, PLAN_SECONDS)
        self._lock = forks.lock()

    def draw(self, words: Sequence[str], run: str | None) -> dict[str, Any]:
        """Make a plan and show it.

        Raises:
            OptionInvalid: A keeper cannot be read.
        """
        keepers = tuple(parse_keeper(word) for word in words)
        parts = tuple(
            _PlanPart(shelf, id, root, shelf.manager(root).plan(id, keepers)) for shelf, id, root in self._runs(run)
        )
        digest = hashlib.sha256("\n".join([*words, *(part.plan.id for part in parts)]).encode()).hexdigest()[:20]
        drawn = _Drawn(digest, keepers, parts, time.time() + PLAN_SECONDS)
        self._plans.set(digest, drawn)
        return _shown(drawn)

    def _runs(self, run: str | None) -> list[tuple[Shelf, str, str]]:
        """Which runs in which roots; without a run, all that may be changed."""
        if run is not None:
            shelf, _ = self._library.run(run)
            roots = [one.root for one in shelf.connection.spaces() if one.run == run and one.root]
            if not shelf.writable:
                shelf.manager("")  # says why not
            return [(shelf, run, root) for root in roots]
        shelves = [shelf for shelf in self._library.shelves() if shelf.writable]
        if not shelves and self._library.shelves():
            self._library.shelves()[0].manager("")
        return [(shelf, one.run, one.root) for shelf in shelves for one in shelf.connection.spaces() if one.root]

    def apply(self, plan_id: str) -> dict[str, Any]:
        """Carry out a plan that was shown; once.

        Raises:
            NotFoundHere: There is none of that id, or it is too old.
            PlanOutdated: It no longer holds; nothing was removed.
        """
        with self._lock:
            drawn: _Drawn | None = self._plans.get(plan_id)
            if drawn is None:
                raise NotFoundHere(
                    f"plan {plan_id!r}: there is none; plans are forgotten after an hour. Make a new one."
                )
            for part in drawn.parts:
                self._require_current(part, drawn.keepers)
            removed = self._removed(drawn)
            self._plans.delete(plan_id)
        undo = {"removed": [list(one) for one in removed], "until": time.time() + GRACE}
        self._library.result_cache.put(_UNDO, plan_id, undo)
        frees = sum(part.plan.freed_bytes for part in drawn.parts)
        ids = [id for id, _ in removed]
        return {"undo_id": plan_id, "until": undo["until"], "removed": ids, "frees": frees}

    def _require_current(self, part: _PlanPart, keepers: tuple[Keeper, ...]) -> None:
        now = part.shelf.manager(part.root).plan(part.run, keepers)
        require_current(part.plan, [decision.candidate for decision in now.decisions])

    def _removed(self, drawn: _Drawn) -> list[tuple[str, str]]:
        """What went, as (id, root); a failure on the way tells what had gone before it."""
        removed: list[tuple[str, str]] = []
        for part in drawn.parts:
            names = {one.candidate.name: one.candidate.id for one in part.plan.dropped}
            try:
                done = part.shelf.manager(part.root).prune(part.run, plan=part.plan).done if names else ()
            except PlanOutdated:
                raise
            except CheckpointException as error:
                raise StateConflict(
                    f"after {len(removed)} checkpoints went to the trash, which stay there: {error} Make a new plan."
                ) from error
            removed += [(names[name], part.root) for name in done]
        return removed

    def undo(self, undo_id: str) -> dict[str, Any]:
        """Bring back what a plan removed, as far as its grace is not over.

        Raises:
            NotFoundHere: Nothing was removed under that id.
        """
        known = self._library.result_cache.get(_UNDO, undo_id)
        if known is None:
            raise NotFoundHere(f"undo {undo_id!r}: nothing was removed under that id. Look into the trash.")
        restored, lost = list[str](), dict[str, str]()
        for id, root in known["removed"]:
            try:
                shelf, row = self._library.checkpoint(id)
                if row.state == "deleted":
                    shelf.manager(root).restore_checkpoint(id)
                restored.append(id)
            except CheckpointException as error:
                lost[id] = str(error)
        return {"restored": restored, "lost": lost}


def _shown(drawn: _Drawn) -> dict[str, Any]:
    titles = {
        id: one for shelf in {part.shelf for part in drawn.parts} for id, one in titles_in(shelf.connection).items()
    }
    rows = [
        {
            "id": one.candidate.id,
            "run": part.run,
            **titles.get(part.run, UNTITLED),
            "name": one.name,
            "step": one.candidate.step,
            "at": None if one.candidate.committed_at is None else one.candidate.committed_at.timestamp(),
            "healthy": one.candidate.healthy,
            "keep": one.keep,
            "why": list(one.reasons),
            "frees": one.frees,
        }
        for part in drawn.parts
        for one in part.plan.decisions
    ]
    return {
        "plan_id": drawn.id,
        "rows": rows,
        "keeps": sum(row["keep"] for row in rows),
        "drops": sum(not row["keep"] for row in rows),
        "frees": sum(part.plan.freed_bytes for part in drawn.parts),
        "notes": list(dict.fromkeys(note for one in drawn.parts for note in (*one.plan.unranked, *one.plan.warnings)))[
            :100
        ],
        "until": drawn.until,
        "cli": _command(drawn),
    }


def _command(drawn: _Drawn) -> str:
    """What does the same on a command line: not the rules, which mean whole roots there, but what goes by them."""
    refs: dict[str, list[str]] = {}
    for part in drawn.parts:
        gone = [shlex.quote(f"{part.root}@{one.name}") for one in part.plan.dropped]
        refs.setdefault(part.shelf.told_by(part.root), []).extend(gone)
    commands = [("mckpt rm", *some, told) for told, some in refs.items() if some]
    return " && ".join(" ".join(filter(None, words)) for words in commands)
