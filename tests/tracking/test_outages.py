"""A database that is away never stops training: what is logged waits on disk, once, and arrives when it is back."""

import logging
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.database.errors import DatabaseUnreachable, RowRefused
from model_checkpoint.errors import CheckpointWarning
from model_checkpoint.tracking import ExperimentTracker, TrackerOptions


@pytest.fixture
def place(tmp_path):
    """A folder for a database that is not there yet: a file stands in its place."""
    blocker = tmp_path / "data"
    blocker.write_text("not a folder")
    return blocker


@pytest.fixture
def url(place):
    return f"sqlite:///{place}/runs.db"


@pytest.fixture
def options(tmp_path):
    return TrackerOptions(spool_folder=tmp_path / "spool", beat_seconds=0.05)


def come_back(place):
    place.unlink()
    place.mkdir()


def arrived(url, experiment_id):
    with EnhancedDatabaseConnection(url) as catalog:
        return [(point.metric_name, point.step) for point in catalog.get_metrics(experiment_id)]


def test_a_run_begun_without_a_database_arrives_whole_when_it_is_back(place, url, options, caplog):
    caplog.set_level(logging.INFO, logger="model_checkpoint.tracking")
    tracker = ExperimentTracker("run", "digits", ["a"], {"lr": 0.1}, url, options=options)
    for step in range(300):
        tracker.log_metrics({"x": 1.0, "y": float("nan")}, step=step)
    tracker.log_hyperparameters({"seed": 1})
    away = tracker.flush()
    assert (away.stored, away.spooled) == (0, 600)
    assert not away
    with pytest.raises(DatabaseUnreachable, match=r"runs\.db"):
        tracker.get_metrics()
    assert tracker.experiment.config == {"lr": 0.1, "seed": 1}  # as it was said here

    come_back(place)
    for step in range(300, 400):
        tracker.log_metrics({"x": 1.0, "y": 2.0}, step=step)
    while not tracker.flush():  # tried again at most every second
        pass

    assert (tracker.tally().stored, tracker.tally().spooled) == (800, 0)
    tracker.close()
    assert arrived(url, tracker.experiment_id) == [(name, step) for name in "xy" for step in range(400)]
    run = tracker.experiment
    assert (run.name, run.project_name, list(run.tags), run.status) == ("run", "digits", ["a"], "completed")
    assert run.config == {"lr": 0.1, "seed": 1}
    assert caplog.text.count("the database is away") == 1
    assert caplog.text.count("the database is there") == 1
    tracker.connection.close()


def test_what_is_no_plain_data_is_refused_by_name_while_the_database_is_away_too(url, options):
    with pytest.raises(RowRefused, match=r"config\.model.*plain data"):
        ExperimentTracker("run", config={"model": object()}, database_url=url, options=options)


def test_what_a_run_left_arrives_with_the_next_start(place, url, options):
    first = ExperimentTracker("first", database_url=url, options=options)
    first.log_metrics({"x": 1.0}, step=1)
    first.log_metrics({"x": 2.0}, step=2)
    with pytest.warns(CheckpointWarning, match=r"2 points wait in .*spool for the database"):
        first.close()
    come_back(place)

    second = ExperimentTracker("second", database_url=url, options=options)

    assert arrived(url, first.experiment_id) == [("x", 1), ("x", 2)]
    assert second.connection.get_experiment(first.experiment_id).status == "completed"
    assert second.tally().stored == 0  # they were not its own
    second.close()
    second.connection.close()


def test_a_program_killed_during_an_outage_left_all_that_a_flush_acknowledged(place, url, options):
    script = """
    import os, sys
    from model_checkpoint.tracking import ExperimentTracker, TrackerOptions
    tracker = ExperimentTracker("run", database_url=sys.argv[1], options=TrackerOptions(spool_folder=sys.argv[2]))
    for step in range(500):
        tracker.log_metrics({"x": 1.0}, step=step)
    tally = tracker.flush()
    print(tracker.experiment_id, tally.spooled, flush=True)
    os.kill(os.getpid(), 9)
    """
    program = [sys.executable, "-c", textwrap.dedent(script), url, str(options.spool_folder)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    killed, spooled = done.stdout.split()
    assert spooled == "500"

    come_back(place)
    ExperimentTracker("next", database_url=url, options=options).close()

    assert arrived(url, killed) == [("x", step) for step in range(500)]


def test_a_long_replay_goes_on_round_by_round_while_logging_goes_on(place, url, options, monkeypatch):
    tracker = ExperimentTracker("run", database_url=url, options=options)
    for step in range(20):
        tracker.log_metrics({"x": 1.0}, step=step)
        tracker.flush()
        tracker.set_notes(f"step {step}")  # between them, so that they are replayed one by one
    monkeypatch.setattr("model_checkpoint.tracking.delivery._REPLAY_SECONDS", 0.0)

    come_back(place)
    seen = set()
    while not (tally := tracker.flush()):
        seen.add(tally.stored)
        if len(seen) > 1 and step < 25:
            step += 1
            tracker.log_metrics({"x": 1.0}, step=step)
    step += 1

    assert len(seen) > 5
    assert tally.stored == step
    assert tracker.experiment.notes == "step 19"
    tracker.close()
    assert [one for _, one in arrived(url, tracker.experiment_id)] == list(range(step))
    tracker.connection.close()


def test_a_full_spool_drops_counts_and_tells_once_and_training_goes_on(url, tmp_path, caplog):
    small = TrackerOptions(spool_folder=tmp_path / "spool", spool_bytes=20_000)
    tracker = ExperimentTracker("run", database_url=url, options=small)

    for step in range(5):
        for _ in range(50):
            tracker.log_metrics({f"m{i}": 1.0 for i in range(10)}, step=step)
        tally = tracker.flush()

    assert tally.dropped > 0
    assert tally.spooled + tally.dropped == 2_500
    assert caplog.text.count("metrics are dropped") == 1
    with pytest.warns(CheckpointWarning, match=rf"{tally.dropped} were dropped") as told:
        tracker.close()
    assert told[0].message.report == tally


def test_a_run_resumed_while_its_past_is_unknown_arrives_later(place, url, options):
    come_back(place)
    with ExperimentTracker("run", database_url=url, options=options) as first:
        first.log_metrics({"x": 1.0}, step=7)
    first.connection.close()
    place.rename(place.with_name("elsewhere"))
    place.write_text("not a folder")

    with pytest.warns(CheckpointWarning, match="its past is not known here"):
        again = ExperimentTracker.resume(first.experiment_id, url, options=options)
    again.log_metrics({"x": 2.0}, step=8)
    assert again.flush().spooled == 1
    place.unlink()
    place.with_name("elsewhere").rename(place)
    while not again.flush():
        pass

    assert [step for _, step in arrived(url, first.experiment_id)] == [7, 8]
    assert again.experiment.status == "running"
    again.close()
    again.connection.close()


def test_metrics_of_a_run_nobody_knows_are_refused_told_and_set_aside(place, url, options, caplog):
    with pytest.warns(CheckpointWarning, match="its past is not known here"):
        stray = ExperimentTracker.join("nobody", url, options=options)
    stray.log_metrics({"x": 1.0})
    assert stray.flush().spooled == 1
    come_back(place)
    while stray.flush().spooled:
        pass

    stray.log_metrics({"x": 2.0, "y": 3.0})
    tally = stray.flush()

    assert (tally.stored, tally.spooled, tally.refused) == (0, 0, 3)
    assert "is refused and set aside" in caplog.text
    assert caplog.text.count("the database refuses metrics") <= 1
    aside = list((options.spool_folder / "runs").iterdir())
    assert {path.suffix for path in aside} == {".refused"}
    with pytest.warns(CheckpointWarning, match="3 were refused by it"):
        stray.close()
    stray.connection.close()


def test_a_blocked_spool_folder_never_stops_training(url, place, caplog):
    options = TrackerOptions(spool_folder=place / "below a file")

    tracker = ExperimentTracker("run", database_url=url, options=options)
    tracker.log_metrics({"x": 1.0})
    tally = tracker.flush()

    assert tally.dropped == 1
    assert "neither the database nor the spool takes" in caplog.text
    with pytest.warns(CheckpointWarning, match="1 were dropped"):
        tracker.close()


def training(tracker, over, acknowledged):
    """Log until told that it is over, and note what each flush acknowledged."""
    step = 0
    while not over.is_set():
        for _ in range(20):
            tracker.log_metrics({"loss": 1.0 / (step + 1), "acc": float(step)}, step=step)
            step += 1
        tracker.flush()
        acknowledged.append(step)


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_server_killed_while_training_logs_costs_nothing(kind, request, options, caplog):
    server = request.getfixturevalue(kind)
    url = server.new_database()
    tracker = ExperimentTracker("run", database_url=url, options=options)
    over, acknowledged = threading.Event(), []
    thread = threading.Thread(target=training, args=(tracker, over, acknowledged))
    thread.start()

    for _ in range(2):
        reached = len(acknowledged)
        while len(acknowledged) < reached + 10:
            over.wait(0.01)
        server.kill()
        reached = len(acknowledged)
        while len(acknowledged) < reached + 3:  # training goes on without the server
            over.wait(0.01)
            assert thread.is_alive()
        server.start()
    over.set()
    thread.join(60)
    while not tracker.flush():
        pass

    total = acknowledged[-1]
    tally = tracker.tally()
    assert (tally.stored, tally.spooled, tally.refused, tally.dropped) == (2 * total, 0, 0, 0)
    assert arrived(url, tracker.experiment_id) == [(n, step) for n in ("acc", "loss") for step in range(total)]
    assert {one.count for one in tracker.connection.summaries(tracker.experiment_id)} == {total}
    assert "the database is away" in caplog.text
    tracker.close()
    tracker.connection.close()
