"""Memory plan and loss scale are shown where a run has them."""

import numpy as np
import pytest
import torch
from tests.ground.served import Server
from torch import nn

import model_checkpoint as mc
from model_checkpoint.api.library.shelves import Library
from model_checkpoint.recompute import auto_checkpoint


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A run that trains by a plan, a root that keeps one in its checkpoint, and one with the timeline of a scale."""
    folder = tmp_path_factory.mktemp("extras")
    with mc.ExperimentTracker("planned", config={"lr": 0.1}, database_url=f"sqlite:///{folder}/experiments.db") as run:
        model = auto_checkpoint(blocks(), 0.6, torch.randn(32, 64), tracker=run)
    mc.save(folder / "carried", {"w": np.zeros(2), "plan": model.plan.to_dict()}, step=1)
    mc.save(folder / "oddly-named", {"plan": {"budget_bytes": 7}}, step=1)
    events = [
        {"step": 3, "scale": 32768.0, "event": "backed_off", "detail": "fc.weight"},
        {"step": 9, "scale": 65536.0, "event": "grew", "detail": ""},
    ]
    mc.save(folder / "mixed", {"precision": {"timeline": events, "master": {"w": np.zeros(2)}}}, step=9)
    with Library([str(folder)], cache_dir=str(folder / "cache")) as library, Server(library) as server:
        server.plan = model.plan
        yield server


def blocks():
    return nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(6)])


def ids(server):
    return {row["name"]: row["id"] for row in server.get("/api/runs").json()["rows"]}


@pytest.mark.parametrize("name", ["planned", "carried"])
def test_a_memory_plan_tells_the_trade_and_what_becomes_of_each_stage(planned, name):
    run, plan = ids(planned)[name], planned.plan

    told = planned.get(f"/api/runs/{run}/memory-plan").json()

    assert planned.get(f"/api/runs/{run}").json()["has"] == {"memory": True, "loss_scale": False}
    assert (told["budget"], told["peak"], told["plain"]) == (plan.budget_bytes, plan.peak_bytes, plan.plain_bytes)
    words = {"kept": "keep", "dropped": "drop", "recomputed": "recompute"}
    assert [one["how"] for one in told["stages"]] == [words[fate] for fate in plan.fates()]
    assert set(plan.fates()) != {"kept"}
    assert [one["bytes"] for one in told["pts"]] == [row.bytes for row in plan.front]
    nearest = min(plan.front, key=lambda row: abs(row.bytes - plan.peak_bytes))
    assert told["pts"][told["chosen"]]["bytes"] == nearest.bytes


def test_a_plan_that_was_given_is_logged_too_and_is_no_setting_among_others(planned, tmp_path):
    url = f"sqlite:///{tmp_path}/experiments.db"
    with mc.ExperimentTracker("again", config={"lr": 0.1}, database_url=url) as run:
        auto_checkpoint(blocks(), plan=planned.plan.to_dict(), tracker=run)

    assert run.experiment.config["memory_plan"]["peak_bytes"] == planned.plan.peak_bytes
    assert planned.get(f"/api/runs/{ids(planned)['planned']}").json()["config"] == {"lr": 0.1}
    assert not [name for name in planned.get("/api/runs").json()["names"] if "memory_plan" in name]


def test_what_only_looks_like_a_plan_is_none(planned):
    told = planned.get(f"/api/runs/{ids(planned)['oddly-named']}/memory-plan")

    assert told.status_code == 404
    assert "auto_checkpoint(..., tracker=tracker)" in told.json()["error"]


def test_a_loss_scale_is_read_from_the_newest_checkpoint_that_holds_its_timeline(planned):
    run = ids(planned)["mixed"]

    told = planned.get(f"/api/runs/{run}/loss-scale").json()

    assert planned.get(f"/api/runs/{run}").json()["has"]["loss_scale"] is True
    assert (told["x"], told["y"]) == ([3, 9], [32768.0, 65536.0])
    assert [(one["step"], one["detail"]) for one in told["skipped"]] == [(3, "fc.weight")]
    assert planned.get(f"/api/runs/{run}/memory-plan").status_code == 404
