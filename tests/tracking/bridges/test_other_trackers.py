"""Metrics written through to the real libraries of others, and read back from what those have stored."""

import json
import sqlite3

import numpy as np
import pytest
from tests.tracking.bridges import wandb_files
from tests.tracking.bridges.event_files import scalars

from model_checkpoint.errors import CheckpointWarning
from model_checkpoint.tracking import ExperimentTracker, TrackerOptions
from model_checkpoint.tracking.bridges import MlflowTracker, TensorboardTracker, TrackioTracker, WandbTracker

FIRST, REST = range(10), range(10, 25)
STEPS = [*FIRST, *REST]
LOSSES = [1.0 / (step + 1) for step in STEPS]
QUIET = {
    "DO_NOT_TRACK": "true", "MLFLOW_DISABLE_TELEMETRY": "true", "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline",
    "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false",
}  # fmt: skip

theirs = pytest.mark.filterwarnings("ignore")  # what they deprecate, and leave open, is none of ours


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Everything of others stays in this folder, and asks nobody outside."""
    for name, value in {**QUIET, "TRACKIO_DIR": str(tmp_path / "trackio")}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/runs.db"


def train(url, make, **more):
    """Log a loss and an accuracy for every step, in two processes' worth of trackers; returns the id of the run."""
    options = TrackerOptions(bridge_seconds=120.0)  # tests run beside others
    settings = {"lr": 0.1, "model": {"layers": 2}}
    with ExperimentTracker(
        "baseline", "digits", ["small"], settings, url, notes="a try", bridges=[make()], options=options
    ) as first:
        for step in FIRST:
            first.log_metrics({"train/loss": LOSSES[step], "acc": step / 100, **more}, step=step)
    with ExperimentTracker.resume(first.experiment_id, url, bridges=[make()], options=options) as rest:
        rest.log_hyperparameters({"warmup": 10})
        for step in REST:
            rest.log_metrics({"train/loss": LOSSES[step], "acc": step / 100}, step=step)
    [bridge] = rest.bridges.values()
    assert bridge.tally().sent == 2 * len(REST)
    return first.experiment_id


def test_tensorboard_has_every_point_in_one_folder_of_the_run(tmp_path, url):
    run = train(url, lambda: TensorboardTracker(tmp_path / "tb"))

    found = scalars(tmp_path / "tb" / "digits" / f"baseline-{run[:8]}")
    assert set(found) == {"acc", "train/loss"}
    assert found["train/loss"] == [(step, float(np.float32(loss))) for step, loss in zip(STEPS, LOSSES, strict=True)]


@theirs
@pytest.mark.slow
def test_mlflow_has_one_run_with_every_point_settings_tags_and_status(tmp_path, url):
    import mlflow

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with pytest.warns(CheckpointWarning, match="10 are refused by it"):
        run = train(url, lambda: MlflowTracker(uri), **{"top@5": 0.5})  # a name that MLflow does not take

    client = mlflow.MlflowClient(uri)
    [found] = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    points = client.get_metric_history(found.info.run_id, "train/loss")
    assert [(point.step, point.value) for point in points] == list(zip(STEPS, LOSSES, strict=True))
    assert sorted(found.data.metrics) == ["acc", "train/loss"]
    assert (found.info.run_name, found.info.status) == ("baseline", "FINISHED")
    assert found.data.params == {"lr": "0.1", "model.layers": "2", "warmup": "10"}
    assert found.data.tags["model_checkpoint.run"] == run
    assert (found.data.tags["tags"], found.data.tags["mlflow.note.content"]) == ("small", "a try")


@theirs
@pytest.mark.slow
def test_wandb_has_every_point_under_the_id_of_the_run(tmp_path, url):
    folders = [tmp_path / "first", tmp_path / "rest"]  # W&B tells runs of one id apart by the second they began in
    for folder in folders:
        folder.mkdir()
    begun = iter(folders)
    run = train(url, lambda: WandbTracker(dir=next(begun)))

    first, rest = [wandb_files.ended(path) for folder in folders for path in folder.glob("wandb/offline-run-*/*.wandb")]
    rows = [*wandb_files.history(first), *wandb_files.history(rest)]
    assert [(row["trainer/global_step"], row["train/loss"]) for row in rows] == list(zip(STEPS, LOSSES, strict=True))
    assert wandb_files.run_of(first)[:3] == wandb_files.run_of(rest)[:3] == (run, "digits", "baseline")
    settings = wandb_files.run_of(rest)[3]
    assert {name: settings[name] for name in ("lr", "model", "warmup")} == {
        "lr": 0.1, "model": {"layers": 2}, "warmup": 10,
    }  # fmt: skip


@theirs
@pytest.mark.slow
def test_trackio_has_one_run_with_every_point(tmp_path, url):
    run = train(url, TrackioTracker)

    with sqlite3.connect(tmp_path / "trackio" / "digits.db") as stored:
        rows = stored.execute("select run_name, step, metrics from metrics order by step").fetchall()
        [[settings]] = stored.execute("select config from configs").fetchall()
    assert {name for name, _, _ in rows} == {f"baseline-{run[:8]}"}
    assert [(step, json.loads(text)["train/loss"]) for _, step, text in rows] == list(zip(STEPS, LOSSES, strict=True))
    assert json.loads(settings)["lr"] == 0.1
