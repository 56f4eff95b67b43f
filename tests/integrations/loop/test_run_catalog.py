"""A run in a catalog: an experiment with metrics, checkpoints and branches; a database that is away stops nothing."""

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint import ExperimentTracker
from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.errors import OptionInvalid

DATA = [4.0, 3.0, 2.0, 1.0]


def go(root, catalog, *, stop=None, epochs=2, body=None, **options):
    """Log what comes; leave in the body of step ``stop``, as an exception would."""
    total = {"sum": np.zeros(())}
    run = mc.Run(root, data=DATA, epochs=epochs, every=2, catalog=catalog, total=total, **options)
    for batch in run:
        if run.step == stop:
            raise KeyError("a bug")
        if body is not None:
            body(run)
        total["sum"] += batch
        run.log(loss=batch)
    return run


def cut(root, catalog, stop):
    """Leave by an exception; return when all that is durable has its row."""
    with pytest.raises(KeyError, match="a bug"):
        go(root, catalog, stop=stop)
    mc.finish_saves(root)
    saved = [one.step for one in mc.list_checkpoints(root)]
    with EnhancedDatabaseConnection(catalog if isinstance(catalog, str) else catalog.connection.database_url) as there:
        while [row.step for row in there.get_checkpoints_by_experiment(only_run(there).id)] != saved:
            time.sleep(0.01)


def only_run(catalog):
    [run] = catalog.list_experiments().items
    return run


def losses(catalog, run):
    return [(point.step, point.metric_value) for point in catalog.get_metrics(run.id, "loss")]


def test_a_run_is_an_experiment_with_its_metrics_checkpoints_and_best(tmp_path, url, catalog):
    run = go(tmp_path / "a", url)

    row = only_run(catalog)
    assert (row.id, row.name, row.status, row.step) == (run.tracker.experiment_id, "a", "completed", 8)
    assert row.config == {"epochs": 2, "every": 2, "root": str(tmp_path / "a")}
    assert row.last_seen is not None
    assert row.last_step_at is not None
    assert losses(catalog, row) == [(step, value) for step, value in enumerate(DATA * 2, start=1)]
    rows = catalog.get_checkpoints_by_experiment(row.id)
    assert [(one.step, one.epoch, one.name) for one in rows] == [
        (8, 2, "step-00000008"), (6, 1, "step-00000006"), (4, 0, "step-00000004"), (2, 0, "step-00000002"),
    ]  # fmt: skip
    assert [one.step for one in rows if one.is_best_loss] == [8]  # the newer of equals
    assert rows[0].checksum
    assert set(rows[0].parts) == {"total", "run"}


def test_what_each_save_of_a_run_cost_is_in_the_catalog(tmp_path, url, catalog):
    run = go(tmp_path / "a", url)

    rows = catalog.get_checkpoints_by_experiment(run.tracker.experiment_id)
    told = [catalog.save_entries([row.id])[row.id].details["timing"]["segments"] for row in rows]
    assert [[one["kind"] for one in segments] for segments in told] == [["stall", "staging", "writing"]] * 4
    assert all(one["dur"] >= 0.0 for segments in told for one in segments)
    assert all(writing["from"] >= staging["dur"] for _, staging, writing in told)


def test_work_at_the_end_of_an_epoch_is_logged_at_the_step_it_follows(tmp_path, url, catalog):
    for batches in (run := mc.Run(tmp_path / "a", data=DATA, epochs=2, catalog=url, state={"a": 1})).epochs():
        for _ in batches:
            run.log(inside=1.0)
        run.log(val_loss=0.5)

    points = catalog.get_metrics(only_run(catalog).id)
    assert [point.step for point in points if point.metric_name == "val_loss"] == [4, 8]
    assert [point.step for point in points if point.metric_name == "inside"] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_run_that_logs_nothing_still_tells_how_far_it_is(tmp_path, url, catalog):
    for _ in mc.Run(tmp_path / "a", data=DATA, catalog=url, state={"a": 1}):
        pass

    row = only_run(catalog)
    assert (row.step, row.status) == (4, "completed")
    assert row.last_step_at is not None
    assert catalog.get_metrics(row.id) == []


def test_a_resumed_run_goes_on_as_the_same_experiment(tmp_path, url, catalog):
    cut(tmp_path / "a", url, 5)
    assert only_run(catalog).status == "running"  # whether that was a failure, the end of the program tells

    go(tmp_path / "a", url)

    row = only_run(catalog)
    assert (row.status, row.step) == ("completed", 8)
    assert {step for step, _ in losses(catalog, row)} == {1, 2, 3, 4, 5, 6, 7, 8}
    assert [one.step for one in catalog.get_checkpoints_by_experiment(row.id)] == [8, 6, 4, 2]
    assert catalog.resumptions() == []  # it went on from its newest: no branch


def test_keepers_drop_files_and_rows_and_the_best_stays(tmp_path, url, catalog):
    go(tmp_path / "a", url, keep=[mc.last(1), mc.best("max:loss")])

    row = only_run(catalog)
    kept = catalog.get_checkpoints_by_experiment(row.id)
    assert [one.step for one in kept] == [one.step for one in mc.list_checkpoints(tmp_path / "a")] == [8, 6]
    assert [one.step for one in kept if one.is_best_metric] == [6]
    gone = {one.step for one in catalog.get_checkpoints_by_experiment(row.id, state="deleted")}
    assert gone - {8} == {4, 2}  # 8 is saved again at the end: whether its first version had a row by then, time tells
    assert not mc.undelete(tmp_path / "a", step=2).problem


def test_only_checkpoints_of_the_run_are_dropped(tmp_path, url):
    go(tmp_path / "a", url, epochs=1)
    mc.save(tmp_path / "a", {"else": 1}, step=0, name="mine")

    go(tmp_path / "a", url, keep=[mc.last(1)])

    assert [one.prefix for one in mc.list_checkpoints(tmp_path / "a")] == ["step-00000008", "mine"]


def test_a_copy_that_goes_on_elsewhere_is_a_run_of_its_own_that_branches_off(tmp_path, url, catalog):
    cut(tmp_path / "a", url, 5)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    go(tmp_path / "b", url)

    ids = {run.name: run.id for run in catalog.list_experiments().items}
    [edge] = catalog.resumptions()
    parent = catalog.get_checkpoint(edge.parent)
    assert (edge.child, edge.step) == (ids["b"], 4)
    assert (parent.experiment_id, parent.step) == (ids["a"], 4)
    assert [one.step for one in catalog.get_checkpoints_by_experiment(ids["b"])] == [8, 6]


def test_going_on_from_an_older_checkpoint_is_a_branch_and_what_it_replaces_is_no_more(tmp_path, url, catalog):
    cut(tmp_path / "a", url, 7)
    [data] = (tmp_path / "a" / "checkpoints" / "step-00000006").glob("*.safetensors")
    data.write_bytes(data.read_bytes()[:-1] + b"x")
    before = {one.step: one.id for one in catalog.get_checkpoints_by_experiment(only_run(catalog).id)}

    with pytest.warns(mc.CheckpointWarning, match="step-00000006"):
        run = go(tmp_path / "a", url)

    row = only_run(catalog)
    after = {one.step: one.id for one in catalog.get_checkpoints_by_experiment(row.id)}
    [edge] = catalog.resumptions()
    assert run.resumed_from == 4
    assert (edge.parent, edge.child, edge.step) == (before[4], row.id, 4)
    assert sorted(after) == [2, 4, 6, 8]
    assert after[6] != before[6]
    assert catalog.get_checkpoint(before[6]).state == "deleted"


def test_a_run_that_was_killed_before_its_first_save_begins_again_as_the_same(tmp_path, url, catalog):
    child = os.fork()
    if not child:
        go(tmp_path / "a", url, body=lambda run: (run.tracker.flush(), os._exit(7)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    first = only_run(catalog)

    go(tmp_path / "a", url)

    assert only_run(catalog).id == first.id
    assert only_run(catalog).status == "completed"


def test_a_checkpoint_that_has_no_row_yet_gets_it_when_the_run_goes_on(tmp_path, url, catalog):
    with pytest.raises(KeyError, match="a bug"):
        go(tmp_path / "a", None, stop=5)
    mc.finish_saves(tmp_path / "a")

    go(tmp_path / "a", url)

    assert [one.step for one in catalog.get_checkpoints_by_experiment(only_run(catalog).id)] == [8, 6, 4]
    assert catalog.resumptions() == []


def test_a_lost_catalog_begins_anew_with_the_same_run(tmp_path, url):
    cut(tmp_path / "a", url, 5)
    other = f"sqlite:///{tmp_path}/other.db"

    run = go(tmp_path / "a", other)

    with EnhancedDatabaseConnection(url) as old, EnhancedDatabaseConnection(other) as new:
        assert only_run(old).id == only_run(new).id == run.tracker.experiment_id


def test_a_run_that_is_told_to_end_says_so_and_its_last_save_is_recorded(tmp_path, url, catalog):
    def told(run):
        if run.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit, match="143"):
        go(tmp_path / "a", url, body=told)

    row = only_run(catalog)
    assert (row.status, row.step) == ("stopped", 3)
    assert catalog.latest(row.id).step == 3


def test_a_program_that_ends_by_an_exception_in_a_body_has_failed(tmp_path, url, catalog):
    program = f"""
import model_checkpoint as mc
for _ in (run := mc.Run({str(tmp_path / "a")!r}, data=[1, 2, 3], catalog={url!r}, state={{"a": 1}})):
    run.log(loss=1.0)
    if run.step == 1:
        raise KeyError("a bug")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "KeyError: 'a bug'" in done.stderr
    row = only_run(catalog)
    assert (row.status, row.notes) == ("failed", "failed: KeyError: 'a bug'")
    assert [step for step, _ in losses(catalog, row)] == [1, 2]


def test_a_tracker_of_the_caller_is_used_and_left_open(tmp_path, url, catalog):
    with ExperimentTracker("mine", "digits", ["good"], database_url=url) as tracker:
        cut(tmp_path / "a", tracker, 5)
        assert tracker.experiment.status == "running"
    with ExperimentTracker("again", "digits", database_url=url) as again:
        go(tmp_path / "a", again)
        assert again.experiment.status == "running"

    [edge] = catalog.resumptions()
    assert (catalog.get_checkpoint(edge.parent).experiment_id, edge.child) == (
        tracker.experiment_id,
        again.experiment_id,
    )
    assert catalog.get_experiment(again.experiment_id).status == "completed"


def test_a_database_that_is_away_stops_nothing_and_gets_it_all_when_it_is_back(tmp_path, url):
    place = tmp_path / "runs.db"
    place.mkdir()  # a folder where the file is to be

    with pytest.warns(mc.CheckpointWarning, match="4 points wait in"):
        first = go(tmp_path / "a", url, epochs=1)
    place.rmdir()
    again = go(tmp_path / "a", url)

    assert (first.step, again.resumed_from, again.step) == (4, 4, 8)
    with EnhancedDatabaseConnection(url) as catalog:
        row = only_run(catalog)
        assert (row.id, row.name, row.status) == (first.tracker.experiment_id, "a", "completed")
        assert [step for step, _ in losses(catalog, row)] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert [one.step for one in catalog.get_checkpoints_by_experiment(row.id)] == [8, 6, 4, 2]


def test_a_database_lost_in_the_midst_of_a_run_stops_nothing(tmp_path):
    place = tmp_path / "data"
    place.mkdir()

    def lose(run):
        if run.step == 3:
            for one in place.glob("runs.db*"):
                if one.is_file():
                    one.write_bytes(b"no database " * 1000)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mc.CheckpointWarning)  # that points are not there is told
        run = go(tmp_path / "a", f"sqlite:///{place}/runs.db", body=lose, keep=[mc.last(2)])

    assert (run.step, run.metrics["loss"]) == (8, 1.0)
    assert max(one.step for one in mc.list_checkpoints(tmp_path / "a")) == 8


@pytest.mark.parametrize("wrong", [5, True, {"url": "sqlite://"}])
def test_what_is_no_catalog_is_refused(tmp_path, wrong):
    with pytest.raises(OptionInvalid, match="catalog must be the URL of a database"):
        mc.Run(tmp_path, data=DATA, catalog=wrong, state={"a": 1})
