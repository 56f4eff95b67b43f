"""Retention plan: for every checkpoint why it is kept or dropped, and what that frees. Pure: values in, values out.

Always kept, whatever the keepers say: what is pinned or held, the newest a resume could start from, the one committed
last, what cannot be read here and now, what is damaged (unless told otherwise), and an emergency save that is newer
than anything whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from model_checkpoint.checkpoint.retention.candidate_order import Keeper, Lineup
from model_checkpoint.checkpoint.retention.candidates import Candidate, unique_bytes
from model_checkpoint.checkpoint.retention.keeper_words import as_keepers
from model_checkpoint.checkpoint.retention.keepers import KeepWithin
from model_checkpoint.checkpoint.retention.metric_keepers import KeepBest, KeepPareto
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.notebook_html import html_table
from model_checkpoint.plan import is_newer

DamagePolicy = Literal["keep", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of one checkpoint, and why; ``frees`` is what goes with it, once those before it are gone."""

    candidate: Candidate
    keep: bool
    reasons: tuple[str, ...]
    frees: int = 0

    @property
    def name(self) -> str:
        """The checkpoint's name."""
        return self.candidate.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """Every checkpoint of a root, newest first, and what becomes of it.

    ``id`` is a digest of all that it says; ``done`` are the names that were dropped when it was carried out.
    """

    id: str
    root: str
    keepers: tuple[str, ...]
    decisions: tuple[Decision, ...]
    kept_bytes: int
    freed_bytes: int
    unranked: tuple[str, ...] = ()  # keepers that could judge nothing by what was measured, and why
    warnings: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    swept_bytes: int = 0  # given back to the medium meanwhile, out of the trash

    @property
    def kept(self) -> tuple[Decision, ...]:
        """What stays."""
        return tuple(one for one in self.decisions if one.keep)

    @property
    def dropped(self) -> tuple[Decision, ...]:
        """What goes."""
        return tuple(one for one in self.decisions if not one.keep)

    def summary(self) -> str:
        """The plan as text, one line for each checkpoint."""
        head = f"plan {self.id} of {self.root}: keeps {len(self.kept)} ({self.kept_bytes} bytes), drops "
        lines = [f"{head}{len(self.dropped)} (frees {self.freed_bytes} bytes)"]
        lines += [f"  {'keep' if one.keep else 'drop'} {one.name}: {'; '.join(one.reasons)}" for one in self.decisions]
        return "\n".join([*lines, *(f"  note: {said}" for said in (*self.unranked, *self.warnings))])

    def _repr_html_(self) -> str:
        """How a notebook shows it: each checkpoint, whether it stays, and why."""
        told = f"keeps {len(self.kept)}, drops {len(self.dropped)}, which frees {self.freed_bytes:,} bytes"
        rows = [
            (one.name, "keep" if one.keep else "drop", f"{one.candidate.nbytes:,}", "; ".join(one.reasons))
            for one in self.decisions
        ]
        title, notes = f"plan {self.id} of {self.root}: {told}", (*self.unranked, *self.warnings)
        return html_table(title, ["checkpoint", "", "bytes", "why"], rows, remarks=notes)


@dataclass(slots=True)
class _ClaimTally:
    """What speaks for and against each checkpoint so far."""

    lineup: Lineup
    firm: dict[str, list[str]] = field(default_factory=dict)  # kept whatever the keepers say
    claims: dict[str, list[str]] = field(default_factory=dict)  # by keepers, in their order
    refusals: dict[str, list[str]] = field(default_factory=dict)

    def kept(self) -> list[Candidate]:
        """What stays as things stand."""
        return [one for one in self.lineup.every if one.name in self.firm or one.name in self.claims]


def plan_retention(
    candidates: Iterable[Candidate],
    keep: Keeper | str | Sequence[Keeper | str],
    *,
    now: datetime | None = None,
    damaged: DamagePolicy = "keep",
    root: str = "",
) -> RetentionPlan:
    """Decide on every candidate; the same candidates, keepers and moment give the same plan, in whatever order.

    Example:
        >>> from model_checkpoint.checkpoint.retention.keepers import every, last
        >>> steps = [Candidate(id=str(step), name=f"s{step}", step=step, files=((str(step), 10),)) for step in range(5)]
        >>> plan = plan_retention(steps, [last(1), every(2)])
        >>> [one.name for one in plan.dropped], plan.freed_bytes
        (['s3', 's1'], 20)
    """
    if damaged not in ("keep", "drop"):
        raise OptionInvalid(f"damaged must be 'keep' or 'drop', got {damaged!r}. Nothing was done.")
    keepers = as_keepers(keep)
    lineup = Lineup.of(candidates, now or datetime.now(UTC))
    _refuse_nonsense(lineup)
    tally = _ClaimTally(lineup)
    for one, why in _protected(lineup, damaged):
        tally.firm.setdefault(one.name, []).append(why)
    for keeper in keepers:
        for name, verdict in keeper.judge(lineup).items():
            (tally.claims if verdict.keep else tally.refusals).setdefault(name, []).append(verdict.why)
    for keeper in keepers:
        if isinstance(keeper, KeepWithin):
            _fill(tally, keeper, keepers)
    decisions = _decide(tally)
    return RetentionPlan(
        id=_digest(root, decisions),
        root=root,
        keepers=tuple(map(str, keepers)),
        decisions=decisions,
        kept_bytes=unique_bytes(one.candidate for one in decisions if one.keep),
        freed_bytes=sum(one.frees for one in decisions),
        unranked=tuple(_unranked(lineup, keepers)),
        warnings=tuple(_over_budget(tally, keepers)),
    )


def _refuse_nonsense(lineup: Lineup) -> None:
    for one in lineup.every:
        if one.committed_at is not None and one.committed_at.tzinfo is None:
            raise OptionInvalid(f"{one.name} was committed at {one.committed_at}, which has no time zone; give it UTC.")
    names = [one.name for one in lineup.every]
    twins = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twins:
        raise OptionInvalid(f"two candidates are called {twins[0]!r}; names must be unique in a root.")


def _protected(lineup: Lineup, damaged: str) -> Iterator[tuple[Candidate, str]]:
    """What stays whatever the keepers say, and why."""
    usable = lineup.usable
    if usable:
        yield usable[0], "the newest: a resume starts here"
        latest = max(usable, key=lambda one: (one.created, one.name))
        if latest is not usable[0]:
            yield latest, "committed last"
    for one in lineup.every:
        if one.pinned:
            yield one, "pinned"
        if one.held:
            yield one, one.held
        if not one.healthy:
            yield from ((one, why) for why in _why_damaged_stays(one, damaged, alone=not usable))
        elif not one.complete and not (usable and is_newer(usable[0], one)):
            yield one, "an emergency save, newer than anything whole"


def _why_damaged_stays(one: Candidate, damaged: str, *, alone: bool) -> Iterator[str]:
    if one.unread:
        yield f"cannot be read here and now: {one.problem}"
    elif damaged == "keep":
        yield f"damaged, may be repaired: {one.problem}"
    elif alone:
        yield f"damaged, but nothing better is left: {one.problem}"


def _fill(tally: _ClaimTally, budget: KeepWithin, keepers: Sequence[Keeper]) -> None:
    """Keep what fits, newest first; a hard budget begins from what is kept whatever the keepers say."""
    order, cut = list(tally.lineup.usable), dict[str, list[str]]()
    if budget.hard:
        order = _by_claim(tally, keepers)
        cut = {name: tally.claims.pop(name) for name in [*tally.claims] if name not in tally.firm}
    held = {key: nbytes for one in tally.kept() for key, nbytes in one.files}
    total = sum(held.values())
    for one in order:
        if one.name in tally.firm or one.name in tally.claims:
            continue
        new = {key: nbytes for key, nbytes in one.files if key not in held}
        if total + sum(new.values()) > budget.nbytes:
            tally.refusals.setdefault(one.name, []).append(f"{budget}: does not fit")
            continue
        held |= new
        total += sum(new.values())
        tally.claims[one.name] = cut.get(one.name, [f"{budget}: fits"])


def _by_claim(tally: _ClaimTally, keepers: Sequence[Keeper]) -> list[Candidate]:
    """What the first keeper claims, newest first, then the second, then what nobody claims."""
    rank = {
        name: number
        for number, keeper in reversed([*enumerate(keepers)])
        for name, verdict in keeper.judge(tally.lineup).items()
        if verdict.keep
    }
    counted = [one for one in tally.lineup.every if one.usable or one.name in rank]
    return sorted(counted, key=lambda one: rank.get(one.name, len(keepers)))


def _decide(tally: _ClaimTally) -> tuple[Decision, ...]:
    kept = tally.kept()
    names = {one.name for one in kept}
    left = {key for one in kept for key, _ in one.files}
    frees, goes = dict[str, int](), [one for one in reversed(tally.lineup.every) if one.name not in names]
    last_holder = {key: one.name for one in goes for key, _ in one.files if key not in left}
    for one in goes:
        frees[one.name] = sum(nbytes for key, nbytes in dict(one.files).items() if last_holder.get(key) == one.name)
    return tuple(
        Decision(
            candidate=one,
            keep=one.name in names,
            reasons=_reasons(tally, one, kept=one.name in names),
            frees=frees.get(one.name, 0),
        )
        for one in tally.lineup.every
    )


def _reasons(tally: _ClaimTally, one: Candidate, *, kept: bool) -> tuple[str, ...]:
    if kept:
        return (*tally.firm.get(one.name, ()), *tally.claims.get(one.name, ()))
    if not one.healthy:
        return (f"damaged: {one.problem}",)
    if not one.complete:
        return ("an incomplete emergency save, and a newer whole one is there",)
    return tuple(tally.refusals.get(one.name, ())) or ("no keeper claims it",)


def _unranked(lineup: Lineup, keepers: Sequence[Keeper]) -> Iterator[str]:
    for keeper in keepers:
        if isinstance(keeper, (KeepBest, KeepPareto)) and (said := keeper.unknown(lineup)):
            yield said


def _over_budget(tally: _ClaimTally, keepers: Sequence[Keeper]) -> Iterator[str]:
    for keeper in keepers:
        if isinstance(keeper, KeepWithin):
            over = unique_bytes(tally.kept()) - keeper.nbytes
            if over > 0:
                yield f"{keeper}: what must be kept is {over} bytes more"


def _digest(root: str, decisions: Sequence[Decision]) -> str:
    """A digest of all that a plan says."""
    said = [[one.name, one.candidate.id, one.keep, one.reasons, one.frees] for one in decisions]
    return hashlib.sha256(json.dumps([root, said]).encode()).hexdigest()[:16]
