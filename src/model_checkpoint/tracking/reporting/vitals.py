"""Vitals: whether a run lives, hangs or is dead, told from its row alone, with the evidence.

The thread that writes metrics also says every few seconds that the process lives, by the database's clock. It goes on
doing so while the training itself stands still, so a hung run differs from a dead one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from model_checkpoint.database.records import Experiment

BEAT_SECONDS = 10.0
DEAD_SECONDS = 6 * BEAT_SECONDS  # a database that is slow or away for a moment kills nobody
HUNG_SECONDS = 600.0
_UNITS = (("d", 86_400.0), ("h", 3600.0), ("min", 60.0))


class RunState(Enum):
    """How a run is."""

    ALIVE = "alive"
    HUNG = "hung"  # the process lives, the training does not move
    DEAD = "dead"  # the process is gone without having said how it ended
    FINISHED = "finished"  # it said how it ended


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVitals:
    """What a run's row tells about its life, in words too."""

    state: RunState
    evidence: str
    silent_seconds: float  # since the process was last seen
    still_seconds: float  # since the training last moved


def judge_run(
    run: Experiment, now: float, *, dead_after: float = DEAD_SECONDS, hung_after: float = HUNG_SECONDS
) -> RunVitals:
    """Judge a run by its row; ``now`` is what the database's clock says.

    Args:
        run: Its row.
        now: See :meth:`EnhancedDatabaseConnection.now`.
        dead_after: Seconds without a sign of life that mean death.
        hung_after: Seconds without a step that mean a hang; set it above the longest step or evaluation.

    Example:
        >>> run = Experiment(id="r1", name="a", start_time=0.0, last_seen=995.0, last_step_at=300.0)
        >>> judge_run(run, 1000.0).state, judge_run(run, 1000.0).evidence
        (<RunState.HUNG: 'hung'>, 'seen 5 s ago, but no step for 12 min (hung after 10 min)')
    """
    silent = max(0.0, now - (run.start_time if run.last_seen is None else run.last_seen))
    still = max(0.0, now - (run.start_time if run.last_step_at is None else run.last_step_at))
    state, evidence = _verdict(run, silent, still, dead_after, hung_after)
    return RunVitals(state=state, evidence=evidence, silent_seconds=silent, still_seconds=still)


def _verdict(run: Experiment, silent: float, still: float, dead: float, hung: float) -> tuple[RunState, str]:
    seen = "never seen since its start" if run.last_seen is None else "last seen"
    moved = "no step for" if run.last_step_at is not None else "no step since its start"
    if run.status != "running":
        return RunState.FINISHED, f"it says so itself: {run.status}"
    if silent > dead:
        return RunState.DEAD, f"{seen} {_span(silent)} ago (dead after {_span(dead)}), still marked as running"
    if still > hung:
        return RunState.HUNG, f"seen {_span(silent)} ago, but {moved} {_span(still)} (hung after {_span(hung)})"
    return RunState.ALIVE, f"seen {_span(silent)} ago, last step {_span(still)} ago"


def _span(seconds: float) -> str:
    """Seconds as a person reads them."""
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds >= 2 * length), ("s", 1.0))
    return f"{seconds / length:.0f} {unit}"
