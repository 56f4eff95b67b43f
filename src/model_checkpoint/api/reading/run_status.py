"""Run status: how a run is, in one word with its evidence, what would be lost if it ended now, and where it began."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from model_checkpoint.api.answers.run_answers import StatusWord
from model_checkpoint.api.library.shelves import Shelf
from model_checkpoint.database import RunOverview
from model_checkpoint.database.records import CheckpointPlace
from model_checkpoint.tracking.reporting.vitals import RunState, judge_run

_ENDED = {"completed": StatusWord.FINISHED, "failed": StatusWord.FAILED, "stopped": StatusWord.STOPPED}
_LIVING = {RunState.ALIVE: StatusWord.ALIVE, RunState.HUNG: StatusWord.STALLED, RunState.DEAD: StatusWord.DEAD}
IN_DANGER = (StatusWord.ALIVE, StatusWord.STALLED, StatusWord.DEAD, StatusWord.FAILED, StatusWord.STOPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """How a run is, how we know, and the seconds and steps since its newest safe checkpoint."""

    status: StatusWord
    evidence: str
    risk_seconds: float | None = None
    risk_steps: int | None = None


def judge(run: RunOverview, now: float) -> RunVerdict:
    """Judge a run by its row and its newest safe checkpoint; ``now`` by the clock of its database.

    Example:
        >>> from model_checkpoint.database import Experiment
        >>> run = Experiment(id="r1", name="a", start_time=0.0, last_seen=995.0, last_step_at=990.0, step=40)
        >>> verdict = judge(RunOverview(experiment=run), 1000.0)
        >>> verdict.status.value, verdict.evidence, verdict.risk_seconds
        ('alive', 'seen 5 s ago, last step 10 s ago', 1000.0)
    """
    row = run.experiment
    if row.status == "running":
        vitals = judge_run(row, now)
        status, evidence = _LIVING[vitals.state], vitals.evidence
    elif row.status in _ENDED:
        status, evidence = _ENDED[row.status], f"it says so itself: {row.status}"
    else:
        status, evidence = StatusWord.UNKNOWN, "made from its checkpoints alone: no tracker says how it is"
    seconds, steps = _at_risk(run, status, now)
    return RunVerdict(status=status, evidence=evidence, risk_seconds=seconds, risk_steps=steps)


def _at_risk(run: RunOverview, status: StatusWord, now: float) -> tuple[float | None, int | None]:
    if status not in IN_DANGER:
        return None, None
    row, safe = run.experiment, run.safe
    until = now
    if status not in (StatusWord.ALIVE, StatusWord.STALLED):
        until = next((one for one in (row.last_step_at, row.end_time, row.last_seen) if one is not None), now)
    since = row.start_time if safe is None else safe.created_at
    steps = max(0, row.step - (0 if safe is None else safe.step))
    return (max(0.0, until - since) if steps or status in (StatusWord.ALIVE, StatusWord.STALLED) else 0.0), steps


def first_steps(places: Sequence[CheckpointPlace]) -> dict[str, int]:
    """Of each run the step of its first checkpoint; ``places`` are by step."""
    return {place.run: place.step for place in reversed(places)}  # the first is the last to come


def begun_at(shelf: Shelf, runs: Iterable[RunOverview]) -> dict[str, int]:
    """The step from which runs count on that went on from another's checkpoint; nothing of those that count anew.

    A resume counts on, a fine-tuning anew: which of them it was is told by the first step that the run saved.
    """
    mine = {run.experiment.id: run for run in runs}
    edges = {edge.child: edge for edge in shelf.connection.resumptions() if edge.child in mine} if mine else {}
    if not edges:
        return {}
    owners = {
        row.id: row.experiment_id for row in shelf.connection.get_checkpoints([one.parent for one in edges.values()])
    }
    left = {run: edge.step or 0 for run, edge in edges.items() if owners.get(edge.parent) != run}
    first = first_steps(shelf.connection.checkpoint_places(left))
    return {run: step for run, step in left.items() if first.get(run, mine[run].step) >= step}
