"""The manifests are the truth: a catalog that is lost is built anew from them, with runs, flags, pins and all."""

import dataclasses
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint import ExperimentTracker
from model_checkpoint.checkpoint.catalog.reindexing import reindex
from model_checkpoint.database import EnhancedDatabaseConnection

VOLATILE = {"unique_bytes"}


def rows_of(db, run):
    every = db.get_checkpoints_by_experiment(run)
    return [{k: v for k, v in dataclasses.asdict(row).items() if k not in VOLATILE} for row in every]


@pytest.mark.parametrize("backend", ["native", "safetensors"])
def test_a_catalog_built_anew_equals_the_one_that_was_lost(make, run, tmp_path, backend):
    manager = make(storage_backend=backend, best_metric="accuracy")
    ids = [
        manager.save_checkpoint(
            {"w": np.full(2, float(step))},
            epoch=step,
            step=step * 10,
            loss=1.0 / (step + 1),
            val_loss=abs(step - 1.0),
            metrics={"accuracy": step / 10, "f1": float("nan")},
            config={"lr": 0.1},
            notes=f"note {step}",
            tags=["x"],
            metadata={"who": "me"},
        )
        for step in range(4)
    ]
    manager.pin(ids[0])
    manager.delete_checkpoint(ids[2])
    before = rows_of(manager.connection, run.experiment_id)

    with EnhancedDatabaseConnection(f"sqlite:///{tmp_path}/new.db") as db:
        report = reindex(manager.root, db, best_metric="accuracy")
        after, found = rows_of(db, run.experiment_id), db.get_experiment(run.experiment_id)
        trail = [(one.action, one.details["checkpoints"]) for one in db.audit().items]

    assert repr(after) == repr(before)  # NaN is not equal to itself
    assert (found.name, found.project_name, list(found.tags)) == ("baseline", "tests", ["a"])
    assert (report.checkpoints, report.runs, report.gone, report.unreadable) == (3, 1, 0, ())
    assert trail == [("reindex", 3)]


@pytest.mark.usefixtures("database_url")
def test_reindexing_a_catalog_that_is_there_changes_only_what_is_not_so(manager, run):
    ids = [manager.save_checkpoint({"w": np.ones(2)}, step=step, val_loss=float(step)) for step in range(3)]
    manager.verify_experiment_integrity()
    before = rows_of(manager.connection, run.experiment_id)
    assert reindex(manager.root, manager.connection).gone == 0
    assert rows_of(manager.connection, run.experiment_id) == before

    mc.delete(manager.root, id=ids[0])  # behind the back of the catalog
    report = reindex(manager.root, manager.connection)

    assert (report.checkpoints, report.gone) == (2, 1)
    assert [row.id for row in manager.list_checkpoints()] == ids[:0:-1]
    assert [row.id for row in manager.list_checkpoints(best_only=True)] == [ids[1]]


def test_checkpoints_saved_without_a_manager_are_a_run_of_their_own(sqlite_url, tmp_path):
    for step in range(3):
        mc.save(f"{tmp_path}/plain", {"a": step}, step=step, metrics={"val_loss": 1.0 - step})

    with EnhancedDatabaseConnection(sqlite_url) as db:
        reindex(f"{tmp_path}/plain", db)
        reindex(f"{tmp_path}/plain", db)
        (run,) = db.list_experiments().items
        rows = db.get_checkpoints_by_experiment(run.id)

    assert run.name == "plain"
    assert [(row.step, row.val_loss, row.is_best_val_loss) for row in rows] == [
        (2, -1.0, True),
        (1, 0.0, False),
        (0, 1.0, False),
    ]


def spoil(row):
    """Let nobody read the manifest of a checkpoint; returns what was in it."""
    path = Path(row.file_path) / "manifest.json"
    before = path.read_bytes()
    path.write_bytes(b"rubbish")
    return lambda: path.write_bytes(before)


@pytest.mark.usefixtures("database_url")
def test_a_checkpoint_whose_manifest_cannot_be_read_stays_in_the_catalog(manager, run):
    """It may be repaired; a row that is marked deleted is in no list and nobody looks for it."""
    ids = [manager.save_checkpoint({"w": np.ones(2)}, step=step) for step in range(2)]
    mend = spoil(manager.get_checkpoint(ids[1]))

    report = reindex(manager.root, manager.connection)
    there = [row.id for row in manager.list_checkpoints()]
    mend()

    assert (report.gone, [name for name, _ in report.unreadable]) == (0, [manager.get_checkpoint(ids[1]).name])
    assert there == ids[::-1]
    assert manager.load_checkpoint()["step"] == 1


@pytest.mark.usefixtures("database_url")
def test_what_is_saved_while_a_root_is_reindexed_is_not_taken_for_gone(manager, run):
    manager.save_checkpoint({"w": np.ones(2)}, step=1)
    late = []

    def save_meanwhile(event):
        if not late:
            late.append(manager.save_checkpoint({"w": np.ones(2)}, step=2))

    report = reindex(manager.root, manager.connection, progress=save_meanwhile)

    assert late
    assert report.gone == 0
    assert manager.load_checkpoint()["step"] == 2


@pytest.mark.usefixtures("database_url")
def test_a_run_of_which_nothing_is_left_in_the_root_is_noticed(make, run, catalog_url):
    manager = make()
    manager.save_checkpoint({"w": np.ones(2)}, step=1)
    with ExperimentTracker("other", database_url=catalog_url) as other:
        make(other).save_checkpoint({"w": np.ones(2)}, step=1)
    gone = [manager.get_checkpoint(row.id) for row in manager.list_checkpoints()]
    shutil.rmtree(gone[0].file_path)

    report = reindex(manager.root, manager.connection)
    other.connection.close()

    assert (report.checkpoints, report.gone, manager.list_checkpoints()) == (1, 1, [])


@pytest.mark.usefixtures("database_url")
def test_marks_that_were_taken_off_in_the_root_do_not_come_back(manager, run):
    id = manager.save_checkpoint({"w": np.ones(2)}, step=1, tags=["given", "stays"], notes="given")
    manager.pin(id)
    manager.tag(id, "later")
    manager.note(id, "a remark")
    manager.untag(id, "given")
    name = manager.get_checkpoint(id).name
    mc.unpin(manager.root, name=name)
    mc.untag(manager.root, "later", name=name)
    mc.note(manager.root, "another", name=name)

    reindex(manager.root, manager.connection)

    (row,) = manager.list_checkpoints()
    assert (row.pinned, list(row.tags), row.notes) == (False, ["stays"], "another")


@pytest.mark.usefixtures("database_url")
def test_a_run_that_was_never_catalogued_gets_its_steps_times_and_curves(manager, run, tmp_path):
    before = time.time()
    for step in (10, 20):
        mc.save(f"{tmp_path}/plain", {"a": step}, step=step, metrics={"val_loss": 1.0 / step})
    db = manager.connection

    for _ in range(2):  # and the same again
        reindex(f"{tmp_path}/plain", db)

    (found,) = (one for one in db.list_experiments().items if one.name == "plain")
    assert found.step == 20
    assert before - 2 <= found.start_time <= found.last_step_at <= time.time() + 2
    assert [(p.step, p.metric_value) for p in db.get_metrics(found.id, "val_loss")] == [(10, 0.1), (20, 0.05)]
    assert [(one.metric_name, one.count) for one in db.summaries(found.id)] == [("val_loss", 2)]


@pytest.mark.usefixtures("database_url")
def test_the_curves_of_a_tracked_run_are_left_to_its_tracker(manager, run):
    run.log_metrics({"loss": 0.5}, step=1)
    run.flush()
    manager.save_checkpoint({"w": np.ones(2)}, step=1, loss=0.5)

    reindex(manager.root, manager.connection)

    assert [one.count for one in manager.connection.summaries(run.experiment_id)] == [1]


@pytest.mark.usefixtures("database_url")
def test_a_dry_run_tells_what_would_be_done_and_does_nothing(manager, run):
    ids = [manager.save_checkpoint({"w": np.ones(2)}, step=step) for step in range(3)]
    shutil.rmtree(manager.get_checkpoint(ids[0]).file_path)
    manager.connection.forget_checkpoint(ids[1])
    before, trail = rows_of(manager.connection, run.experiment_id), manager.audit().items

    told = reindex(manager.root, manager.connection, dry_run=True)

    assert (told.checkpoints, told.added, told.gone, told.dry_run) == (2, 1, 1, True)
    assert rows_of(manager.connection, run.experiment_id) == before
    assert manager.audit().items == trail
    assert dataclasses.replace(reindex(manager.root, manager.connection), dry_run=True) == told


def test_the_criterion_of_the_best_travels_with_the_checkpoints(make, run, tmp_path):
    manager = make(best_metric="f1 - 0.1*latency")
    ids = [
        manager.save_checkpoint({"w": np.ones(2)}, step=step, metrics={"f1": f1, "latency": latency})
        for step, (f1, latency) in enumerate([(0.8, 1.0), (0.9, 1.0), (0.95, 5.0)])
    ]

    with EnhancedDatabaseConnection(f"sqlite:///{tmp_path}/new.db") as db:
        reindex(manager.root, db)
        flagged = [row.id for row in db.get_checkpoints_by_experiment(run.experiment_id) if row.is_best_metric]

    assert flagged == [ids[1]]


def mckpt(*words):
    command = [sys.executable, "-m", "model_checkpoint", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_builds_it_beside_the_checkpoints_or_where_it_is_told(manager, run, tmp_path):
    id = manager.save_checkpoint({"w": np.ones(2)}, step=1)
    other = manager.get_checkpoint(manager.save_checkpoint({"w": np.ones(2)}, step=2))
    (Path(other.file_path) / "manifest.json").write_bytes(b"rubbish")

    done = mckpt("reindex", manager.root, "--json")
    told = mckpt("reindex", manager.root, "--database", f"sqlite:///{tmp_path}/told.db")

    report = json.loads(done.stdout)
    assert (done.returncode, report["checkpoints"], [name for name, _ in report["unreadable"]]) == (1, 1, [other.name])
    assert "recorded 1 checkpoint of 1 run" in told.stdout
    for url in (f"sqlite:///{manager.root}/catalog.db", f"sqlite:///{tmp_path}/told.db"):
        with EnhancedDatabaseConnection(url) as db:
            assert [row.id for row in db.get_checkpoints_by_experiment(run.experiment_id)] == [id]
    assert mckpt("reindex", f"{tmp_path}/nowhere").returncode == 3
