"""Run lines: runs searched, sorted and paged, from summary rows alone; points are touched only to draw sparklines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model_checkpoint.api.answers.plain_values import number_of
from model_checkpoint.api.answers.run_answers import StatusWord
from model_checkpoint.api.library.shelves import Library, Shelf
from model_checkpoint.api.reading.run_status import RunVerdict, begun_at, judge
from model_checkpoint.database import MetricSummary, RunOverview
from model_checkpoint.database.values.cursors import cursor_of, read_cursor
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.plan.run_query import RunQuery, parse_query
from model_checkpoint.tracking.reporting.run_search import best_of, host_of, search_names, search_row, user_of

SORTS = ("heartbeat", "started", "name", "experiment", "status", "step", "n", "bytes", "at_risk")
_HEADLINES = ("val_loss", "eval_loss", "loss", "train_loss")
_STEPS = ("total_steps", "max_steps", "num_training_steps", "steps")
_TROUBLED = (StatusWord.STALLED, StatusWord.DEAD)
_LIVING = (StatusWord.ALIVE, StatusWord.STALLED)
_UNENDED = (*_LIVING, StatusWord.DEAD)
_ORDER = {word: place for place, word in enumerate((*_TROUBLED, *(one for one in StatusWord if one not in _TROUBLED)))}
_MOST_ATTENTION = 5
_MOST_NAMES = 1000

Summaries = Mapping[str, Mapping[str, MetricSummary]]  # by run and metric


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsWanted:
    """Which runs, in what order, with which metrics."""

    text: str = ""
    sort: str = "-heartbeat"
    columns: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()  # these alone
    limit: int = 200
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class RunCandidate:
    """One run with all that it may be chosen by."""

    shelf: Shelf
    overview: RunOverview
    verdict: RunVerdict
    actor: str
    summaries: Mapping[str, MetricSummary]
    begun_at: int = 0  # the step from which it counted on

    @property
    def host(self) -> str | None:
        """The machine that saved its newest checkpoint."""
        return host_of(self.actor)

    @property
    def user(self) -> str | None:
        """Who saved its newest checkpoint."""
        return user_of(self.actor)

    @property
    def heard(self) -> float:
        """When the run was last heard of."""
        row = self.overview.experiment
        newest = self.overview.newest
        return row.last_seen or row.end_time or (newest.created_at if newest else 0.0) or row.start_time


def list_runs(library: Library, wanted: RunsWanted) -> dict[str, Any]:
    """The document of a list of runs.

    Raises:
        QueryInvalid: The search cannot be read.
        OptionInvalid: The order or the cursor is none.
    """
    shelves = [(shelf, shelf.connection.overviews(), shelf.connection.now()) for shelf in library.shelves()]
    measured = sorted({name for shelf, _, _ in shelves for name in shelf.connection.metric_names()})
    names = search_names(measured, [run for _, runs, _ in shelves for run in runs])
    query = parse_query(wanted.text, set(names))
    needed = _needed(query, wanted, measured)
    judged = [(one, now) for shelf, runs, now in shelves for one in _candidates(shelf, runs, now, needed)]
    candidates = [one for one, _ in judged]
    chosen = [one for one, now in judged if not query.terms or query.matches(searchable(one, now))]
    page, following = _page(chosen, wanted)
    as_of = max((now for _, _, now in shelves), default=0.0)
    return {
        "rows": lines_of(list(page.values()), wanted.columns, as_of),
        "places": list(page),
        "counts": _counted(chosen),
        "all_counts": _counted(candidates),
        "attention": lines_of(_troubled(candidates), (), as_of),
        "worst_at_risk": _riskiest(candidates),
        "unsafe": len(_unsafe(candidates)),
        "metric_names": measured[:_MOST_NAMES],
        "names": names[:_MOST_NAMES],
        "next": following,
        "as_of": as_of,
    }


def _counted(runs: Iterable[RunCandidate]) -> dict[str, int]:
    return {word.value: 0 for word in StatusWord} | Counter(one.verdict.status.value for one in runs)


def _troubled(runs: Iterable[RunCandidate]) -> list[RunCandidate]:
    """Runs somebody should look at, the latest first."""
    found = [one for one in runs if one.verdict.status in _TROUBLED]
    return sorted(found, key=lambda one: one.heard, reverse=True)[:_MOST_ATTENTION]


def _unsafe(runs: Iterable[RunCandidate]) -> list[RunCandidate]:
    """Runs that would begin anew, or have to: none of their checkpoints is safe."""
    return [one for one in runs if one.verdict.status in _UNENDED and one.overview.safe is None]


def _riskiest(runs: Iterable[RunCandidate]) -> dict[str, Any] | None:
    living = [one for one in runs if one.verdict.status in _LIVING and one.verdict.risk_seconds is not None]
    worst = max(living, key=lambda one: one.verdict.risk_seconds or 0.0, default=None)
    if worst is None:
        return None
    row = worst.overview.experiment
    return {"run": row.id, "name": row.name, "seconds": worst.verdict.risk_seconds}


def _needed(query: RunQuery, wanted: RunsWanted, measured: Sequence[str]) -> set[str]:
    """The metrics whose summaries must be read."""
    asked = {*query.names, *wanted.columns, wanted.sort.removeprefix("-"), *_HEADLINES}
    return {name.removeprefix("best.") for name in asked} & {*measured} or {*measured[:1]}


def _candidates(
    shelf: Shelf, runs: Sequence[RunOverview], now: float, metrics: Iterable[str]
) -> Iterable[RunCandidate]:
    connection = shelf.connection
    actors = connection.savers([run.newest.id for run in runs if run.newest is not None])
    by_run: dict[str, dict[str, MetricSummary]] = {}
    for one in connection.summaries_of(sorted(metrics)):
        by_run.setdefault(one.experiment_id, {})[one.metric_name] = one
    verdicts = [judge(run, now) for run in runs]
    begun = begun_at(shelf, [run for run, one in zip(runs, verdicts, strict=True) if one.status is StatusWord.ALIVE])
    for run, verdict in zip(runs, verdicts, strict=True):
        id, actor = run.experiment.id, actors.get(run.newest.id, "") if run.newest is not None else ""
        yield RunCandidate(shelf, run, verdict, actor, by_run.get(id, {}), begun.get(id, 0))


def searchable(one: RunCandidate, now: float) -> dict[str, Any]:
    """A run as a search looks at it."""
    return search_row(one.overview, now=now, saver=one.actor, summaries=one.summaries.values())


def _page(chosen: Sequence[RunCandidate], wanted: RunsWanted) -> tuple[dict[int, RunCandidate], str | None]:
    """The runs of one page by their places among all that were chosen, and where the next page begins."""
    word, falling = wanted.sort.removeprefix("-"), wanted.sort.startswith("-")
    keyed = sorted(((_key(one, word), one.overview.experiment.id, one) for one in chosen), key=lambda item: item[:2])
    there = [item for item in keyed if item[0][0] == 0]
    absent = [item for item in keyed if item[0][0] == 1]  # at the end, whatever the direction
    ordered = [*(reversed(there) if falling else there), *absent]
    only = frozenset(wanted.ids)
    placed = [(place, item) for place, item in enumerate(ordered) if not only or item[1] in only]
    ordered = [item for _, item in placed]
    start = 0
    if wanted.cursor:
        start = _behind(ordered, read_cursor(wanted.cursor, 3), falling=falling)
    some = placed[start : start + wanted.limit]
    more = start + wanted.limit < len(ordered)
    last = some[-1][1] if more and some else None
    following = None if last is None else cursor_of([*last[0], last[1]])
    return {place: item[2] for place, item in some}, following


def _behind(ordered: Sequence[tuple[Any, str, RunCandidate]], cursor: Sequence[Any], *, falling: bool) -> int:
    """Where the list goes on behind a cursor, also if its row is gone."""
    absent, key, run = cursor
    for place, (mine, id, _) in enumerate(ordered):
        if id == run:
            return place + 1
        try:
            passed = (mine[0], mine[1], id) > (absent, key, run)
            if falling and mine[0] == 0 == absent:
                passed = (mine[1], id) < (key, run)
        except TypeError:
            raise OptionInvalid("cursor: is of another list. Take it from the page before.") from None
        if passed:
            return place
    return len(ordered)


def _key(one: RunCandidate, word: str) -> tuple[int, Any]:
    row, verdict = one.overview.experiment, one.verdict
    own: dict[str, Any] = {
        "heartbeat": one.heard,
        "started": row.start_time,
        "name": row.name.lower(),
        "experiment": row.project_name.lower(),
        "status": _ORDER[verdict.status],
        "step": one.overview.step,
        "n": one.overview.checkpoints,
        "bytes": one.overview.unique_bytes,
        "at_risk": verdict.risk_seconds,
    }
    value = own[word] if word in own else _measure(one, word)
    return (1, 0.0) if value is None else (0, value)


def _measure(one: RunCandidate, word: str) -> float | None:
    summary = one.summaries.get(word.removeprefix("best."))
    if summary is None:
        return None
    value = best_of(summary)[0] if word.startswith("best.") else summary.last
    return None if value is None or not math.isfinite(value) else value


def lines_of(page: Sequence[RunCandidate], columns: Sequence[str], now: float) -> list[dict[str, Any]]:
    """The lines of some runs, their sparklines drawn with one statement for each shelf."""
    wanted = {id(one): _headline(one) for one in page}
    sparks: dict[str, list[float | None]] = {}
    for shelf in dict.fromkeys(one.shelf for one in page):
        sparks |= shelf.sparklines(
            {
                one.overview.experiment.id: (key, one.summaries[key].count)
                for one in page
                if one.shelf is shelf and (key := wanted[id(one)]) is not None
            }
        )
    return [_line(one, columns, wanted[id(one)], sparks.get(one.overview.experiment.id, []), now) for one in page]


def _headline(one: RunCandidate) -> str | None:
    """The metric that stands for a run."""
    return next((name for name in (*_HEADLINES, *sorted(one.summaries)) if name in one.summaries), None)


def _line(
    one: RunCandidate, columns: Sequence[str], headline: str | None, spark: Sequence[float | None], now: float
) -> dict[str, Any]:
    row, overview, verdict = one.overview.experiment, one.overview, one.verdict
    shown = columns or ([headline] if headline is not None else [])
    risk = None
    if verdict.risk_seconds is not None:
        risk = {"seconds": verdict.risk_seconds, "steps": verdict.risk_steps}
    return {
        "id": row.id,
        "name": row.name,
        "experiment": row.project_name,
        "status": verdict.status,
        "evidence": verdict.evidence,
        "step": overview.step,
        "total_steps": total_steps(row.config),
        "steps_per_s": steps_per_second(one, now),
        "started": row.start_time or None,
        "ended": row.end_time,
        "heartbeat": row.last_seen,
        "last_step_at": row.last_step_at,
        "host": one.host,
        "user": one.user,
        "tags": list(row.tags),
        "notes": row.notes,
        "metrics": {name: _glance(one.summaries[name]) for name in shown if name in one.summaries},
        "spark": list(spark),
        "spark_key": headline,
        "newest": _mark(overview.newest),
        "safe": _mark(overview.safe),
        "at_risk": risk,
        "bytes_unique": overview.unique_bytes,
        "n": overview.checkpoints,
        "writable": one.shelf.writable,
    }


def _glance(summary: MetricSummary) -> dict[str, Any]:
    best, step = best_of(summary)
    last = {"last": number_of(summary.last), "last_step": summary.last_step}
    return {**last, "best": number_of(best), "best_step": step}


def _mark(mark: Any) -> dict[str, Any] | None:
    if mark is None:
        return None
    return {"id": mark.id, "step": mark.step, "at": mark.created_at, "health": health_word(mark.health)}


def health_word(stored: str) -> str:
    """The health of a checkpoint as people are told it: what nobody has looked at is unverified, no more."""
    return "unverified" if stored in ("unknown", "unchecked", "") else stored


def total_steps(config: Mapping[str, Any]) -> int | None:
    """How far a run is to go, if its settings say so."""
    found = (config.get(name) for name in _STEPS)
    return next((one for one in found if isinstance(one, int) and not isinstance(one, bool) and one > 0), None)


def steps_per_second(one: RunCandidate, now: float) -> float | None:
    """The pace of a run that lives, since its start; steps that another did before it are none of its own."""
    row = one.overview.experiment
    if one.verdict.status is not StatusWord.ALIVE or row.last_step_at is None or not row.start_time:
        return None
    seconds = row.last_step_at - row.start_time
    steps = row.step - one.begun_at
    return steps / seconds if seconds > 0 and steps > 0 and now > 0 else None
