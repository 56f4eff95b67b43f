"""The same answers on SQLite, PostgreSQL and MariaDB."""

import numpy as np
import pytest
from tests.ground.served import Server

import model_checkpoint as mc
from model_checkpoint.api.library.shelves import Library
from model_checkpoint.database import EnhancedDatabaseConnection, LineageEdge


@pytest.fixture
def anywhere(database_url, tmp_path):
    """A server over a run and its child, in each of the three."""
    ids = []
    with mc.ExperimentTracker("parent", "digits", ["paper"], {"lr": 0.1}, database_url=database_url) as run:
        manager = mc.EnhancedCheckpointManager(run, tmp_path / "ckpts", max_checkpoints=None)
        for step in range(1, 101):
            run.log_metrics({"val_loss": 10.0 / step, "odd": float("nan")}, step=step)
            if step % 25 == 0:
                ids.append(manager.save_checkpoint({"w": np.full(8, float(step))}, step=step, val_loss=10.0 / step))
        manager.close()
    with mc.ExperimentTracker("child", "digits", config={"lr": 0.2}, database_url=database_url) as child:
        child.log_metrics({"val_loss": 0.05}, step=80)
    with EnhancedDatabaseConnection(database_url) as connection:
        connection.add_edge(LineageEdge(parent=ids[2], child=child.experiment_id, kind="resumed", step=75))
    cache = str(tmp_path / "cache")
    with Library([], database_url=database_url, cache_dir=cache) as library, Server(library) as server:
        yield server, run.experiment_id, ids


def test_every_page_is_the_same_on_every_database(anywhere):
    server, run, ids = anywhere

    rows = {row["name"]: row for row in server.get("/api/runs?q=val_loss < 1 experiment:digits").json()["rows"]}
    assert (rows["parent"]["n"], rows["parent"]["newest"]["id"], len(rows["parent"]["spark"])) == (4, ids[3], 32)
    assert rows["child"]["safe"] is None
    assert server.get("/api/runs?cols=odd").json()["rows"][-1]["metrics"]["odd"]["last"] == "NaN"

    series = server.get(f"/api/runs/series?ids={run}&keys=val_loss&px=10&form=json").json()["series"][0]
    assert (series["count"], len(series["x"]), max(series["max"])) == (100, 10, 10.0)

    first = server.get("/api/checkpoints?sort=-step&limit=3").json()
    rest = server.get(f"/api/checkpoints?sort=-step&limit=3&cursor={first['next']}").json()
    assert [row["step"] for row in first["rows"] + rest["rows"]] == [100, 75, 50, 25]
    unclaimed = server.get("/api/checkpoints?rule=none").json()["rows"]
    assert [row["step"] for row in unclaimed] == [50, 25]

    nodes = {node["name"]: node for node in server.get("/api/lineage").json()["nodes"]}
    assert (nodes["child"]["parent"], nodes["child"]["changed"]) == (run, {"lr": [0.1, 0.2]})
    assert server.get(f"/api/checkpoints/{ids[2]}").json()["children"] == [nodes["child"]["run"]]

    storage = server.get("/api/storage").json()
    assert storage["disks"][0]["days"][-1]["used"] == storage["disks"][0]["used"] > 0
    assert server.get("/api/integrity").json()["ages"]["never"] == 4
    assert len(server.get(f"/api/runs/{run}/saves").json()["rows"][0]["segments"]) == 5


def test_changes_are_told_and_retention_works_on_every_database(anywhere):
    server, run, ids = anywhere
    server.get("/api/events?seconds=0")

    told = server.post("/api/retention/plan", json={"keep": ["last:1"], "run": run}).json()
    done = server.post("/api/retention/apply", json={"plan_id": told["plan_id"]}).json()
    assert sorted(done["removed"]) == sorted(ids[:3])
    assert f'"id":"{run}"' in server.get("/api/events?seconds=0.5").text
    assert len(server.post("/api/retention/undo", json={"undo_id": done["undo_id"]}).json()["restored"]) == 3
    job = server.post("/api/integrity/scrub", json={}).json()
    assert server.job(job["id"])["result"]["outcomes"] == {"healthy": 4}


def test_tags_that_others_set_are_told_on_every_database(anywhere, database_url):
    server, run, ids = anywhere
    server.get("/api/events?seconds=0")
    with EnhancedDatabaseConnection(database_url) as connection:
        connection.update_checkpoint(ids[0], tags=["gold"])
        connection.update_experiment(run, tags=["paper", "gold"])

    told = server.get("/api/events?seconds=0.6").text

    assert all(f'"type":"{kind}","id":"{run}"' in told for kind in ("checkpoint", "run"))
