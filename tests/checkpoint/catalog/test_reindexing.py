"""The manifests are the truth: a catalog that is lost is built anew from them, with runs, flags, pins and all."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import model_checkpoint as mc
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
