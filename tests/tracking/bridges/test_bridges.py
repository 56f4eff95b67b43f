"""What is logged is written through to other trackers, and none of them ever holds up or ends a training."""

import logging
import subprocess
import sys
import textwrap
import threading

import pytest
from tests.ground.crowds import in_child
from tests.tracking.bridges.event_files import scalars

from model_checkpoint.database.records import Experiment
from model_checkpoint.errors import CheckpointWarning, OptionInvalid
from model_checkpoint.tracking import ExperimentTracker, TrackerOptions
from model_checkpoint.tracking.bridges import Bridge, installed_trackers
from model_checkpoint.tracking.bridges.required_package import required_package
from model_checkpoint.tracking.errors import FlushTimeout
from model_checkpoint.tracking.metric_queue import Logged


class Ledger:
    """A tracker of the user's own: it keeps what it is told, and fails, hangs or refuses as long as it is asked to."""

    def __init__(self, name="ledger"):
        self.name = name
        self.points, self.runs, self.settings, self.ends = [], [], [], []
        self.fails = False
        self.answers = threading.Event()
        self.answers.set()

    def require(self):
        pass

    def begin(self, run):
        self.obey()
        self.runs.append(run.name)

    def describe(self, run):
        self.settings.append(dict(run.config))
        if "refused" in run.config:
            raise ValueError("no such setting")

    def log(self, calls):
        self.obey()
        taken = [(step, name, value) for _, step, values in calls for name, value in values.items()]
        self.points += [point for point in taken if "@" not in point[1]]
        return [name for _, name, _ in taken if "@" in name]

    def end(self, run):
        self.ends.append(run.status)

    def obey(self):
        self.answers.wait()
        if self.fails:
            raise ConnectionError("nobody there")


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/runs.db"


def told(caplog, text):
    return [one for one in caplog.records if one.levelno == logging.WARNING and text in one.message]


def test_what_is_logged_reaches_the_catalog_and_every_other_tracker(url):
    one, two = Ledger("one"), Ledger("two")
    with ExperimentTracker("run", config={"lr": 0.1}, database_url=url, bridges=[one, two]) as tracker:
        for step in range(300):
            tracker.log_metrics({"loss": 1.0 / (step + 1), "acc": step}, step=step)
        tracker.log_hyperparameters({"seed": 1})

    stored = [(point.step, point.metric_name, point.metric_value) for point in tracker.get_metrics()]
    assert len(stored) == 600
    assert sorted(one.points) == sorted(two.points) == sorted(stored)
    assert one.runs == ["run"]
    assert one.settings[-1] == {"lr": 0.1, "seed": 1}
    assert one.ends == two.ends == ["completed"]
    assert tracker.bridges["one"].tally().sent == 600


def test_a_run_that_fails_is_told_as_failed(url):
    other = Ledger()
    with pytest.raises(KeyError, match="a bug"), ExperimentTracker("run", database_url=url, bridges=[other]):
        raise KeyError("a bug")

    assert other.ends == ["failed"]


def test_a_tracker_that_hangs_holds_up_neither_logging_nor_flush_nor_the_end(url):
    other = Ledger()
    other.answers.clear()
    options = TrackerOptions(bridge_seconds=0.1)
    tracker = ExperimentTracker("run", database_url=url, bridges=[other], options=options)
    for step in range(50):
        tracker.log_metrics({"loss": 0.5}, step=step)
    assert tracker.flush().stored == 50
    with pytest.raises(FlushTimeout, match="still on their way"):
        tracker.bridges["ledger"].flush(0.01)
    with pytest.warns(CheckpointWarning, match=r"50 points wait for ledger.* The catalog has them all"):
        tracker.close()

    assert not other.answers.is_set()  # it hangs to this moment
    assert len(tracker.get_metrics()) == 50
    other.answers.set()
    for thread in [one for one in threading.enumerate() if one.name == "mckpt-metrics"]:
        thread.join()
    assert (len(other.points), other.ends) == (50, ["completed"])  # it got all of it while the program lived


def test_a_tracker_that_fails_is_told_once_and_gets_everything_once_when_it_is_back(url, caplog):
    other = Ledger()
    other.fails = True
    tracker = ExperimentTracker("run", database_url=url, bridges=[other])
    for step in range(3):
        tracker.log_metrics({"loss": 0.5}, step=step)
        tracker.flush()
        assert tracker.bridges["ledger"].flush().waiting == step + 1
    assert len(told(caplog, "nobody there")) == 1

    other.fails = False
    assert tracker.bridges["ledger"].flush().sent == 3
    other.fails = True
    tracker.log_metrics({"loss": 0.25}, step=3)
    tracker.flush()
    tracker.bridges["ledger"].flush()
    other.fails = False
    tracker.close()

    assert [step for step, *_ in other.points] == [0, 1, 2, 3]
    assert len(told(caplog, "nobody there")) == 1


def test_what_finds_no_room_is_dropped_and_counted(caplog):
    other = Ledger()
    other.fails = True
    bridge = Bridge(other, Experiment(id="r1", name="run"), capacity=10)
    for step in range(30):
        bridge.put([Logged(float(step), step, {"loss": 0.5})])
        bridge.flush()
    other.fails = False
    tally = bridge.flush()
    with pytest.warns(CheckpointWarning, match="20 were dropped"):
        bridge.close(Experiment(id="r1", name="run", status="completed"))

    assert (tally.sent, tally.waiting, tally.dropped) == (10, 0, 20)
    assert [step for step, *_ in other.points] == list(range(10))
    assert not tally


def test_a_metric_it_does_not_take_is_counted_and_named_once(url, caplog):
    other = Ledger()
    tracker = ExperimentTracker("run", database_url=url, bridges=[other])
    for step in range(3):
        tracker.log_metrics({"top@5": 0.5, "loss": 0.5}, step=step)
        tracker.flush()
        tally = tracker.bridges["ledger"].flush()
    with pytest.warns(CheckpointWarning, match="3 are refused by it"):
        tracker.close()

    assert (tally.sent, tally.refused) == (3, 3)
    assert len(told(caplog, "ledger does not take top@5")) == 1
    assert len(tracker.get_metrics("top@5")) == 3


def test_settings_it_does_not_take_keep_no_metric_waiting(url, caplog):
    other = Ledger()
    with ExperimentTracker("run", config={"refused": 1}, database_url=url, bridges=[other]) as tracker:
        tracker.log_metrics({"loss": 0.5}, step=0)

    assert other.points == [(0, "loss", 0.5)]
    assert len(told(caplog, "no such setting")) == 1


def test_a_forked_child_logs_to_the_catalog_alone(url):
    other = Ledger()
    tracker = ExperimentTracker("run", database_url=url, bridges=[other])
    tracker.log_metrics({"loss": 0.5}, step=0)

    def work():
        tracker.log_metrics({"loss": 0.25}, step=1)
        assert tracker.flush()
        tracker.close()

    assert in_child(work) == 0
    tracker.close()

    assert other.points == [(0, "loss", 0.5)]
    assert [point.step for point in tracker.get_metrics()] == [0, 1]


def test_what_is_no_tracker_is_refused_before_anything_is_recorded(tmp_path, url):
    wrong = {
        "comet": r"'comet' is not known; known are mlflow, wandb, trackio, tensorboard",
        3: r"a int has no name, require, begin",
    }
    for one, message in wrong.items():
        with pytest.raises(OptionInvalid, match=message):
            ExperimentTracker("run", database_url=url, bridges=[one])
    with pytest.raises(OptionInvalid, match=r"Write bridges=\['mlflow'\]"):
        ExperimentTracker("run", database_url=url, bridges="mlflow")
    with pytest.raises(OptionInvalid, match="each other tracker once"):
        ExperimentTracker("run", database_url=url, bridges=[Ledger(), Ledger()])

    assert list(tmp_path.iterdir()) == []


def test_a_tracker_that_is_not_installed_is_refused_by_name(tmp_path, url, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)  # as where it is not installed

    with pytest.raises(OptionInvalid, match=r"mlflow cannot be imported.*pip install mlflow"):
        ExperimentTracker("run", database_url=url, bridges=["mlflow"])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_called_like_a_tracker_is_none(tmp_path, monkeypatch):
    (tmp_path / "some_tracker").mkdir()  # as W&B, Trackio and TensorBoard leave them beside a program
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(OptionInvalid, match=r"here it is but a folder, .*some_tracker.*pip install some_tracker"):
        required_package("some_tracker")


def test_a_program_that_ends_without_closing_its_run_still_brings_everything_over(tmp_path):
    program = f"""
        from model_checkpoint import ExperimentTracker
        from model_checkpoint.tracking.bridges import TensorboardTracker

        other = TensorboardTracker({str(tmp_path / "tb")!r})
        tracker = ExperimentTracker("run", database_url="sqlite:///{tmp_path}/runs.db", bridges=[other])
        for step in range(20):
            tracker.log_metrics({{"loss": 0.5}}, step=step)
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], check=True)

    [folder] = (tmp_path / "tb" / "default").iterdir()
    assert [step for step, _ in scalars(folder)["loss"]] == list(range(20))


def test_what_is_installed_can_be_asked_for():
    assert "tensorboard" in installed_trackers()
