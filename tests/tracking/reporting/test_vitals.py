"""A dead run is seen as dead and a hung one as hung, with the evidence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_checkpoint.database.records import Experiment
from model_checkpoint.tracking import RunState, judge_run

NOW = 10_000.0


def run(**fields):
    return Experiment(**{"id": "r1", "name": "r1", "start_time": 0.0, **fields})


@pytest.mark.parametrize(
    ("fields", "state", "evidence"),
    [
        ({"last_seen": NOW - 5, "last_step_at": NOW - 7}, RunState.ALIVE, "seen 5 s ago, last step 7 s ago"),
        ({"last_seen": NOW - 5, "last_step_at": NOW - 700}, RunState.HUNG, "seen 5 s ago, but no step for 12 min"),
        ({"last_seen": NOW - 90, "last_step_at": NOW - 95}, RunState.DEAD, "last seen 90 s ago (dead after 60 s)"),
        ({"last_seen": NOW - 5}, RunState.HUNG, "no step since its start 3 h"),
        ({}, RunState.DEAD, "never seen since its start 3 h ago"),
        ({"start_time": NOW - 3}, RunState.ALIVE, "seen 3 s ago"),
        ({"status": "failed", "last_seen": 1.0}, RunState.FINISHED, "it says so itself: failed"),
        ({"status": "completed"}, RunState.FINISHED, "completed"),
    ],
)
def test_a_row_tells_how_the_run_is_and_why(fields, state, evidence):
    vitals = judge_run(run(**fields), NOW)

    assert vitals.state is state
    assert evidence in vitals.evidence


def test_the_limits_can_be_set():
    slow = run(last_seen=NOW - 5, last_step_at=NOW - 700)

    assert judge_run(slow, NOW, hung_after=3600.0).state is RunState.ALIVE
    assert judge_run(slow, NOW, dead_after=1.0).state is RunState.DEAD


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_whoever_was_seen_just_now_is_not_dead_whatever_the_clock_of_the_run_said(seen, moved):
    vitals = judge_run(run(start_time=5e9, last_seen=seen, last_step_at=moved), seen)

    assert vitals.state in (RunState.ALIVE, RunState.HUNG)
    assert vitals.silent_seconds == 0.0
