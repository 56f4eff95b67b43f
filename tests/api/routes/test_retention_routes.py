"""What was previewed is what goes, and it comes back; where the bytes are."""

import json
import shlex
import time
from dataclasses import replace

import numpy as np
import pytest
from tests.ground.served import Server
from typer.testing import CliRunner

import model_checkpoint as mc
from model_checkpoint.api.library.shelves import Library
from model_checkpoint.cli.app import app
from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment


def plan(server, made, *keep):
    return server.post("/api/retention/plan", json={"keep": list(keep), "run": made.real}).json()


def test_a_plan_says_of_each_why_it_goes_or_stays_and_removes_nothing(server, made):
    told = plan(server, made, "last:1", "best:val_loss")

    rows = {row["id"]: row for row in told["rows"]}
    assert [rows[id]["keep"] for id in made.real_checkpoints] == [False, False, False, True]
    assert all(row["why"] for row in told["rows"])
    assert told["frees"] == sum(row["frees"] for row in told["rows"]) > 0
    assert len(mc.list_checkpoints(made.root)) == 4


def test_the_command_beside_a_plan_does_what_the_button_does(server, made, tmp_path):
    """Of two runs in two roots each keeps its newest, though by the same words a root alone would not."""
    with mc.ExperimentTracker("second", "digits", database_url=made.url) as run:
        for root in (made.root, tmp_path / "other root"):
            with mc.EnhancedCheckpointManager(run, root, max_checkpoints=None) as manager:
                for step in (50, 60):
                    manager.save_checkpoint({"w": np.zeros(4)}, step=step)
    told = server.post("/api/retention/plan", json={"keep": ["last:1"]}).json()
    gone = {row["id"] for row in told["rows"] if not row["keep"]}
    roots = (made.root, tmp_path / "other root")
    before = {one.id for root in roots for one in mc.list_checkpoints(root)}

    for command in told["cli"].split(" && "):
        assert CliRunner().invoke(app, shlex.split(command)[1:]).exit_code == 0

    left = {one.id for root in roots for one in mc.list_checkpoints(root)}
    kept = {row["id"] for row in told["rows"] if row["keep"]}
    with EnhancedDatabaseConnection(made.url) as catalog:
        states = {id: catalog.get_checkpoint(id).state for id in gone | kept}
    assert len(gone) >= 5
    assert left == before - gone
    assert {states[id] for id in gone} == {"deleted"}
    assert {states[id] for id in kept} == {"committed"}


def test_what_was_previewed_goes_and_the_undo_id_brings_it_back(server, made, tmp_path):
    told = plan(server, made, "last:2")

    done = server.post("/api/retention/apply", json={"plan_id": told["plan_id"]}).json()
    assert sorted(done["removed"]) == sorted(made.real_checkpoints[:2])
    assert len(mc.list_checkpoints(made.root)) == 2
    assert server.post("/api/retention/apply", json={"plan_id": told["plan_id"]}).status_code == 404

    # a server that was started since can undo it too
    with Library([str(made.folder)], cache_dir=str(tmp_path / "cache")) as library, Server(library) as other:
        back = other.post("/api/retention/undo", json={"undo_id": done["undo_id"]}).json()
    assert (sorted(back["restored"]), back["lost"]) == (sorted(made.real_checkpoints[:2]), {})
    assert len(mc.list_checkpoints(made.root)) == 4


def test_a_plan_that_no_longer_holds_is_refused_and_nothing_goes(server, made):
    told = plan(server, made, "last:1")
    server.post(f"/api/checkpoints/{made.real_checkpoints[0]}/pin", json={"pinned": True})

    answer = server.post("/api/retention/apply", json={"plan_id": told["plan_id"]})

    assert (answer.status_code, answer.json()["code"]) == (409, "PlanOutdated")
    assert len(mc.list_checkpoints(made.root)) == 4


def test_a_keeper_that_cannot_be_read_is_told_with_a_cure(server):
    answer = server.post("/api/retention/plan", json={"keep": ["lats:3"]})

    assert answer.status_code == 400
    assert "Did you mean 'last'" in answer.json()["error"]


def test_storage_tells_disk_runs_and_growth(reader, built):
    told = reader.get("/api/storage").json()
    (disk,) = [one for one in told["disks"] if one["size"] is not None]

    assert disk["roots"] == [str(built.root)]
    assert 0 < disk["used"] < disk["size"]
    assert len(disk["days"]) == 46
    assert disk["days"][-1]["used"] == disk["used"]
    assert disk["full_at"] is not None
    unique = [run["unique"] for run in told["runs"]]
    assert unique == sorted(unique, reverse=True)
    assert sum(run["n"] for run in told["runs"]) == built.checkpoints


def test_the_page_and_the_command_line_foresee_the_same(tmp_path):
    """A run of an hour fills a disk as fast as one of a fortnight: the pace is that of its saves."""
    url = f"sqlite:///{tmp_path}/runs.db"
    with (
        mc.ExperimentTracker("fresh", database_url=url) as run,
        mc.EnhancedCheckpointManager(run, tmp_path / "root", max_checkpoints=None) as manager,
    ):
        for step in range(5):
            manager.save_checkpoint({"w": np.zeros(100_000) + step}, step=step)
            time.sleep(0.2)
    told = json.loads(CliRunner().invoke(app, ["forecast", str(tmp_path / "root"), "--json"]).output)
    left = told["saves_left"] * told["pace"]["seconds"]

    with Library([str(tmp_path)], cache_dir=str(tmp_path / "cache")) as library, Server(library) as server:
        (disk,) = server.get("/api/storage").json()["disks"]

    assert left < 1000 * 86_400
    assert disk["full_at"] - time.time() == pytest.approx(left, rel=0.1)


def test_a_read_only_server_changes_nothing(made, tmp_path):
    id = made.real_checkpoints[0]
    with Library([str(made.folder)], read_only=True, cache_dir=str(tmp_path)) as library, Server(library) as server:
        assert {row["writable"] for row in server.get("/api/runs").json()["rows"]} == {False}
        for path, body in (
            (f"checkpoints/{id}/pin", {"pinned": True}),
            (f"checkpoints/{id}/tags", {"add": ["x"]}),
            (f"checkpoints/{id}/note", {"text": "x"}),
            (f"checkpoints/{id}/delete", None),
            (f"checkpoints/{id}/restore", None),
            (f"checkpoints/{id}/repair", None),
            ("retention/plan", {"keep": ["last:1"]}),
            ("retention/plan", {"keep": ["last:1"], "run": made.real}),
        ):
            answer = server.post(f"/api/{path}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (403, "ReadOnlyHere"), path
    assert len(mc.list_checkpoints(made.root)) == 4


def test_what_is_remarked_of_several_runs_is_remarked_once(server, made):
    plan = server.post("/api/retention/plan", json={"keep": ["last:3", "best:nobody_measured_this"]}).json()

    assert any("nobody_measured_this" in note for note in plan["notes"])
    assert len(plan["notes"]) == len(set(plan["notes"]))


def test_a_root_that_has_fallen_silent_fills_its_disk_more_slowly_than_when_it_saved(tmp_path):
    """A burst that is over is no pace: a disk must not be called full within minutes when nobody writes to it."""
    now, rates = time.time(), []
    for silent in (2.0, 3600.0):
        folder = tmp_path / str(silent)
        folder.mkdir()
        with EnhancedDatabaseConnection(f"sqlite:///{folder}/experiments.db") as database:
            database.save_experiment(Experiment(id="r1", name="baseline"))
            for step in range(6):
                moment = now - silent - 6 + step
                row = Checkpoint(id=f"c{step}", experiment_id="r1", step=step, root=str(folder), file_size=10**6)
                database.save_checkpoint(replace(row, created_at=moment))
        with Library([str(folder)], cache_dir=str(tmp_path / "cache")) as library, Server(library) as server:
            rates.append(server.get("/api/storage").json()["disks"][0]["rate"])

    assert rates[0] > 1e10  # some megabytes a second
    assert 0 < rates[1] < 3e7  # one in an hour, at most
