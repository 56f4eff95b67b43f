"""One run in the catalog, the same on every database: what it is, what it measures, how it ended."""

import math
import time

import numpy as np
import pytest
import torch

import model_checkpoint
from model_checkpoint.database.errors import RowRefused
from model_checkpoint.errors import CheckpointWarning, OptionInvalid
from model_checkpoint.tracking import ExperimentTracker, RunState, TrackerOptions
from model_checkpoint.tracking.errors import ExperimentUnknown, MetricRefused, TrackerClosed


@pytest.fixture
def track(database_url, tmp_path):
    """Make trackers on one database; all are closed in the end."""
    made = []

    def make(name="run", *, resume=None, **fields):
        options = TrackerOptions(spool_folder=tmp_path / "spool", **fields.pop("options", {}))
        if resume is not None:
            made.append(ExperimentTracker.resume(resume, database_url, options=options))
        else:
            made.append(ExperimentTracker(name, database_url=database_url, options=options, **fields))
        return made[-1]

    yield make
    for tracker in made:
        tracker.close()
        tracker.connection.close()


def points(tracker, name=None, **wanted):
    return [(point.metric_name, point.step, point.metric_value) for point in tracker.get_metrics(name, **wanted)]


def test_a_run_is_in_the_catalog_from_the_start_as_it_was_described(track):
    tracker = track("base", project_name="digits", tags=["a", "b"], config={"lr": 0.1, "deep": {"x": [1, None]}})

    run = tracker.connection.get_experiment(tracker.experiment_id)

    assert (run.name, run.project_name, list(run.tags), run.status) == ("base", "digits", ["a", "b"], "running")
    assert run.config == {"lr": 0.1, "deep": {"x": [1, None]}}
    assert run.end_time is None


def test_what_was_logged_before_a_flush_is_in_the_database_after_it(track):
    tracker = track()
    for step in range(100):
        tracker.log_metrics({"loss": 1.0 / (step + 1), "acc": step / 100}, step=step)

    tally = tracker.flush()

    assert tally
    assert (tally.stored, tally.spooled, tally.refused, tally.dropped) == (200, 0, 0, 0)
    assert len(tracker.connection.get_metrics(tracker.experiment_id)) == 200


def test_metrics_come_back_exactly_by_name_and_step(track):
    tracker = track()
    odd = {"nan": math.nan, "inf": math.inf, "low": -math.inf, "tiny": 5e-324, "third": 1 / 3}
    tracker.log_metrics(odd, step=7)
    tracker.log_metrics({"third": np.float32(0.25), "torch": torch.tensor(2)}, step=8)

    assert repr(sorted(points(tracker))) == repr(
        sorted([(name, 7, value) for name, value in odd.items()] + [("third", 8, 0.25), ("torch", 8, 2.0)])
    )
    assert points(tracker, "third") == [("third", 7, 1 / 3), ("third", 8, 0.25)]
    assert points(tracker, "third", step_range=(8, 9)) == [("third", 8, 0.25)]


def test_a_step_that_is_not_given_follows_the_highest(track):
    tracker = track()

    tracker.log_metrics({"x": 0.0})
    tracker.log_metrics({"x": 1.0})
    tracker.log_metrics({"x": 2.0}, step=10)
    tracker.log_metrics({"x": 3.0}, step=np.int64(4))
    tracker.log_metrics({"x": 4.0})

    assert [(step, value) for _, step, value in points(tracker)] == [(0, 0.0), (1, 1.0), (4, 3.0), (10, 2.0), (11, 4.0)]


@pytest.mark.parametrize("step", [1.0, "1", 2**63, None.__class__], ids=repr)
def test_a_step_that_is_no_whole_number_is_refused(track, step):
    with pytest.raises(MetricRefused, match="step: must be a whole number of 64 bits"):
        track().log_metrics({"x": 1.0}, step=step)


def test_one_bad_metric_refuses_the_call_and_nothing_of_it_is_logged(track):
    tracker = track()

    with pytest.raises(MetricRefused, match=r"^metric 'text': is no number but str"):
        tracker.log_metrics({"good": 1.0, "text": "high"}, step=1)
    tracker.log_metrics({"good": 2.0}, step=2)

    assert points(tracker) == [("good", 2, 2.0)]


def test_the_same_step_logged_again_keeps_both_values(track):
    tracker = track()

    for value in (1.0, 2.0, 2.0):
        tracker.log_metrics({"x": value}, step=5)

    assert sorted(points(tracker)) == [("x", 5, 1.0), ("x", 5, 2.0), ("x", 5, 2.0)]


def test_settings_tags_and_notes_add_up(track):
    tracker = track(tags=["a"], config={"lr": 0.1, "seed": 1})

    tracker.log_hyperparameters({"lr": 0.2, "layers": [1, 2]})
    tracker.add_tags("b", "a")
    tracker.remove_tags("a", "never there")
    tracker.set_notes("better than the last one")

    run = tracker.connection.get_experiment(tracker.experiment_id)
    assert run.config == {"lr": 0.2, "seed": 1, "layers": [1, 2]}
    assert list(run.tags) == ["b"]
    assert run.notes == "better than the last one"


def test_what_two_processes_say_about_a_run_adds_up(track):
    one = track(config={"lr": 0.1})
    two = track(resume=one.experiment_id)

    one.log_hyperparameters({"a": 1})
    two.log_hyperparameters({"b": 2})
    one.add_tags("x")
    two.add_tags("y")

    run = one.experiment
    assert run.config == {"lr": 0.1, "a": 1, "b": 2}
    assert sorted(run.tags) == ["x", "y"]


def test_settings_that_are_no_plain_data_are_refused_by_name(track):
    tracker = track()

    with pytest.raises(RowRefused, match=r"config.*model.*plain data"):
        tracker.log_hyperparameters({"model": object()})

    assert tracker.experiment.config == {}


@pytest.mark.parametrize("tags", ["word", [1], [""]], ids=repr)
def test_tags_are_words(track, tags):
    with pytest.raises(OptionInvalid, match="tags must be a list of words"):
        track(tags=tags)


@pytest.mark.parametrize("status", ["completed", "failed", "stopped"])
def test_an_end_is_stamped_and_a_running_run_has_none(track, status):
    tracker, before = track(), time.time()

    tracker.set_status(status)
    run = tracker.experiment
    assert run.status == status
    assert before <= run.end_time <= time.time()

    tracker.set_status("running")
    assert tracker.experiment.end_time is None


def test_an_unknown_status_is_refused(track):
    with pytest.raises(OptionInvalid, match="status must be one of running, completed, failed, stopped, got 'done'"):
        track().set_status("done")


def test_a_run_that_ends_well_is_completed_and_all_its_metrics_are_there(track):
    with track() as tracker:
        tracker.log_metrics({"x": 1.0})

    assert tracker.experiment.status == "completed"
    assert points(tracker) == [("x", 0, 1.0)]


@pytest.mark.parametrize(
    ("error", "status", "notes"),
    [
        (ValueError("bad batch"), "failed", "failed: ValueError: bad batch"),
        (SystemExit(3), "failed", "failed: SystemExit: 3"),
        (KeyboardInterrupt(), "stopped", "stopped: KeyboardInterrupt"),
        (SystemExit(0), "completed", ""),
    ],
    ids=["error", "exit 3", "interrupt", "exit 0"],
)
def test_an_exception_says_how_the_run_ended_and_goes_on(track, error, status, notes):
    tracker = track()

    with pytest.raises(type(error), match=f"^{error}$"), tracker:
        raise error

    run = tracker.experiment
    assert run.status == status
    assert run.notes == notes


def test_a_status_that_was_set_survives_the_end(track):
    with track() as tracker:
        tracker.set_status("failed")

    assert tracker.experiment.status == "failed"


def test_a_closed_tracker_still_reads_and_logs_nothing_more(track):
    tracker = track()
    tracker.log_metrics({"x": 1.0})
    tracker.close()
    tracker.close()

    assert points(tracker) == [("x", 0, 1.0)]
    with pytest.raises(TrackerClosed, match="Nothing was logged"):
        tracker.log_metrics({"x": 2.0})


def test_a_resumed_run_goes_on_where_it_stopped(track):
    with track("first", tags=["t"], config={"lr": 0.1}) as first:
        first.log_metrics({"x": 1.0}, step=41)

    again = track(resume=first.experiment_id)
    again.log_metrics({"x": 2.0})
    again.log_hyperparameters({"resumed": True})

    run = again.experiment
    assert (run.name, run.status, run.end_time) == ("first", "running", None)
    assert run.config == {"lr": 0.1, "resumed": True}
    assert [step for _, step, _ in points(again)] == [41, 42]


def test_an_unknown_run_cannot_be_resumed(track):
    with pytest.raises(ExperimentUnknown, match="run 'nobody': the catalog has none of that id"):
        track(resume="nobody")
    with pytest.raises(ValueError, match="nobody"):
        track(resume="nobody")


def wait_for(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_run_says_by_itself_that_it_lives_and_how_far_it_is(track):
    tracker = track(options={"beat_seconds": 0.05})
    read = lambda: tracker.connection.get_experiment(tracker.experiment_id)  # noqa: E731
    wait_for(lambda: read().last_seen is not None)
    first = read().last_seen
    assert read().last_step_at is None

    wait_for(lambda: read().last_seen > first)  # nothing is logged meanwhile
    tracker.log_metrics({"x": 1.0}, step=12)
    wait_for(lambda: read().step == 12)
    moved = read().last_step_at
    wait_for(lambda: read().last_seen > moved)

    assert read().last_step_at == moved
    assert tracker.vitals().state is RunState.ALIVE
    assert tracker.vitals(hung_after=0.0).state is RunState.HUNG
    tracker.close()
    assert tracker.vitals().state is RunState.FINISHED


def test_runs_are_compared_by_their_ids(track):
    one, two = track("one", config={"lr": 0.1}), track("two", config={"lr": 0.2})
    one.log_metrics({"val_loss": 0.5})
    two.log_metrics({"val_loss": 0.4})
    two.flush()

    comparison = one.compare([two.experiment_id])

    assert [run.name for run in comparison.runs] == ["one", "two"]
    assert comparison.settings == {"lr": (0.1, 0.2)}
    assert comparison.metrics[0].best == two.experiment_id
    with pytest.raises(ExperimentUnknown, match="run 'nobody'"):
        one.compare(["nobody"])


def test_a_report_tells_the_whole_run(track):
    tracker = track("baseline", project_name="digits", tags=["good"], config={"opt": {"lr": 0.1}}, notes="a note")
    for step, loss in enumerate([0.9, math.nan, 0.5]):
        tracker.log_metrics({"loss": loss}, step=step)

    markdown, text = tracker.generate_report(), tracker.generate_report(format="text")

    assert markdown.startswith("# baseline\n")
    assert "| loss | 0.5 | 2 | 0.5 | 2 | 0.9 | 0 | 3 | 1 |" in markdown
    assert "| opt.lr | 0.1 |" in markdown
    assert "alive: seen" in markdown
    assert "a note" in text
    assert "|" not in text
    with pytest.raises(OptionInvalid, match="format must be"):
        tracker.generate_report(format="pdf")


def test_the_package_itself_has_the_tracker():
    assert model_checkpoint.ExperimentTracker is ExperimentTracker


def test_an_unknown_policy_is_refused():
    with pytest.raises(OptionInvalid, match="when_full must be 'block' or 'drop', got 'wait'"):
        TrackerOptions(when_full="wait")


def test_a_full_queue_drops_and_counts_where_that_is_asked_for(track):
    tracker = track(options={"when_full": "drop", "queue_points": 100})

    for step in range(20_000):
        tracker.log_metrics({"x": 1.0}, step=step)
    tally = tracker.flush()

    assert tally.dropped > 0
    assert tally.stored + tally.dropped == 20_000
    assert len(tracker.get_metrics()) == tally.stored
    with pytest.warns(CheckpointWarning, match=f"{tally.dropped} were dropped"):
        tracker.close()


@pytest.mark.parametrize(
    ("url", "home"),
    [
        ("sqlite:////data/runs.db", "/data/runs.db.spool"),
        ("postgresql://me:hush@db/runs", "/state/model_checkpoint/spool/"),
        ("sqlite://", "/state/model_checkpoint/spool/"),
    ],
)
def test_the_spool_has_a_home_the_next_start_finds(url, home, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/state")

    assert TrackerOptions().spool_home(url).startswith(home)
    assert TrackerOptions().spool_home(url) == TrackerOptions().spool_home(url)
    assert TrackerOptions(spool_folder="/mine").spool_home(url) == "/mine"


def test_the_home_of_a_spool_tells_nothing_of_a_password():
    one, other = (TrackerOptions().spool_home(f"mysql://me:{word}@db/runs") for word in ("hush", "shh"))

    assert one == other
