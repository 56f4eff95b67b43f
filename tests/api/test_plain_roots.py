"""Plain roots without any database are served too, read-only, and kept up to date with what is on disk."""

import time

import numpy as np
import pytest
from tests.ground.served import Server

import model_checkpoint as mc
from model_checkpoint.api.library.root_mirror import RootMirror
from model_checkpoint.api.library.served_places import discover
from model_checkpoint.api.library.shelves import Library
from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.errors import CheckpointNotFound


@pytest.fixture
def roots(tmp_path):
    """A folder of two roots, of which one has a damaged manifest in it."""
    for name, steps in (("a", (10, 20, 30)), ("b", (5,))):
        for step in steps:
            state = {"model": {"w": np.full(4, float(step))}, "step": step}
            mc.save(tmp_path / "runs" / name, state, step=step, metrics={"val_loss": 1 / step})
    (tmp_path / "runs/b/checkpoints/step-00000005/manifest.json").write_text("nonsense")
    return tmp_path / "runs"


@pytest.fixture
def plain(roots, tmp_path):
    with Library([str(roots)], cache_dir=str(tmp_path / "cache")) as library, Server(library) as server:
        yield server


def test_each_root_is_a_run_whose_curve_is_what_its_checkpoints_measured(plain):
    rows = {row["name"]: row for row in plain.get("/api/runs?cols=val_loss").json()["rows"]}

    assert sorted(rows) == ["a", "b"]
    assert (rows["a"]["status"], rows["a"]["n"], rows["a"]["step"]) == ("unknown", 3, 30)
    assert rows["a"]["metrics"]["val_loss"] == {"last": 1 / 30, "last_step": 30, "best": 1 / 30, "best_step": 30}
    series = plain.get(f"/api/runs/series?ids={rows['a']['id']}&keys=val_loss&form=json").json()["series"][0]
    assert (series["x"], series["last"]) == ([10, 20, 30], [1 / 10, 1 / 20, 1 / 30])


def test_what_cannot_be_read_is_shown_as_damaged(plain):
    rows = {row["name"]: row for row in plain.get("/api/runs").json()["rows"]}
    (damaged,) = plain.get("/api/checkpoints?health=damaged").json()["rows"]

    assert damaged["name"] == "step-00000005"
    assert rows["b"]["safe"] is None
    assert plain.get(f"/api/checkpoints/{damaged['id']}").json()["damage"][0]["problem"]


def test_nothing_of_it_may_be_changed_from_here(plain):
    (row, *_) = plain.get("/api/checkpoints?health=unverified").json()["rows"]

    for path, body in (("delete", None), ("pin", {"pinned": True}), ("repair", None)):
        answer = plain.post(f"/api/checkpoints/{row['id']}/{path}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "ReadOnlyHere")
    assert row["writable"] is False


def test_but_it_can_be_looked_into_and_verified(plain, roots):
    before = sorted(path for path in roots.rglob("*"))
    row = plain.get("/api/checkpoints?health=unverified").json()["rows"][0]

    job = plain.job(plain.post(f"/api/checkpoints/{row['id']}/verify").json()["id"])
    tensors = plain.ready(f"/api/checkpoints/{row['id']}/tensors")["rows"]
    detail = plain.get(f"/api/checkpoints/{row['id']}").json()

    assert job["result"]["outcome"] == "healthy"
    assert detail["health"] == "healthy"
    assert [(one["name"], one["mean"]) for one in tensors] == [("model.w", 30.0)]
    assert sorted(path for path in roots.rglob("*")) == before  # read, and nothing left behind


def test_saves_pins_and_deletions_on_disk_are_seen(plain, roots):
    plain.get("/api/runs")
    mc.save(roots / "a", {"model": {"w": np.zeros(4)}}, step=40, metrics={"val_loss": 0.01})
    mc.pin(roots / "a", step=20)
    mc.delete(roots / "a", step=10)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        rows = [row for row in plain.get("/api/checkpoints?sort=step").json()["rows"] if row["run_name"] == "a"]
        if [row["step"] for row in rows] == [20, 30, 40]:
            break
        time.sleep(0.05)

    assert [(row["step"], row["pinned"]) for row in rows] == [(20, True), (30, False), (40, False)]
    run = next(row for row in plain.get("/api/runs?cols=val_loss").json()["rows"] if row["name"] == "a")
    assert (run["step"], run["metrics"]["val_loss"]["last"]) == (40, 0.01)


def test_the_best_of_a_root_is_one_that_is_there(tmp_path):
    for step in range(3):
        mc.save(tmp_path / "root", {"a": step}, step=step, metrics={"loss": float(step)})
    with EnhancedDatabaseConnection("sqlite://") as db:
        mirror = RootMirror(db)
        mirror.refresh([str(tmp_path / "root")])
        (run,) = db.list_experiments().items
        mc.delete(tmp_path / "root", step=0)

        mirror._look(*mirror._roots.values())

        assert [(row.step, row.is_best_loss) for row in db.page(run.id).items] == [(2, False), (1, True)]


def test_what_mckpt_verify_remembers_in_a_root_is_known_here(roots, tmp_path):
    from model_checkpoint.integrity import CheckpointVerifier

    CheckpointVerifier.of_root(roots / "a").verify_all_checkpoints()

    with Library([str(roots / "a")], cache_dir=str(tmp_path / "cache")) as library, Server(library) as server:
        counts = server.get("/api/checkpoints").json()["counts"]
    assert (counts["healthy"], counts["unverified"]) == (3, 0)


def test_an_empty_folder_is_served_and_a_missing_one_is_not(tmp_path):
    with Library([str(tmp_path)], cache_dir=str(tmp_path / "cache")) as library, Server(library) as server:
        assert server.get("/api/runs").json()["rows"] == []
    with pytest.raises(CheckpointNotFound, match="no such folder"):
        Library([str(tmp_path / "missing")])


def test_a_catalog_beside_its_checkpoints_is_found_and_covers_them(tmp_path):
    with mc.ExperimentTracker("x", database_url=f"sqlite:///{tmp_path}/experiments.db") as run:
        manager = mc.EnhancedCheckpointManager(run, tmp_path / "ckpts")
        manager.save_checkpoint({"w": np.zeros(2)}, step=1)
        manager.close()

    assert discover([str(tmp_path)]).databases == (f"sqlite:///{tmp_path}/experiments.db",)
    with Library([str(tmp_path)], cache_dir=str(tmp_path / "cache")) as library, Server(library) as server:
        rows = server.get("/api/runs").json()["rows"]
    assert [(row["name"], row["writable"]) for row in rows] == [("x", True)]
