"""Memory plan and loss scale are shown where a run has them."""

import numpy as np
import pytest
from tests.api.conftest import Server

import model_checkpoint as mc
from model_checkpoint.api.library.shelves import Library
from model_checkpoint.recompute.auto.planning.pareto import ParetoRow
from model_checkpoint.recompute.auto.planning.plan import Plan, StageLine
from model_checkpoint.recompute.auto.planning.schedule import Keep, Region


@pytest.fixture
def planned(tmp_path):
    """A run that logged its memory plan, and a root whose checkpoint holds the timeline of a loss scale."""
    plan = Plan(
        schedule=(
            Region(start=0, stop=1, body=(Keep(stage=0), Keep(stage=1))),
            Keep(stage=2),
            Keep(stage=3, mode="disk"),
        ),
        stages=tuple(StageLine(name=f"block{n}", saved_bytes=100 * n, forward_seconds=0.002) for n in range(4)),
        outline="",
        chain=True,
        **{"budget_bytes": 700, "peak_bytes": 650, "predicted_bytes": 640, "floor_bytes": 300, "plain_bytes": 1000},
        **{"predicted_seconds": 1.2, "measured_seconds": 1.25, "plain_seconds": 1.0, "input_bytes": 10},
        front=(
            ParetoRow(bytes=1000, share=1.0, slowdown=1.0, measured=True),
            ParetoRow(bytes=640, share=0.64, slowdown=1.25, measured=True),
        ),
    )
    with mc.ExperimentTracker("planned", database_url=f"sqlite:///{tmp_path}/experiments.db") as run:
        run.log_hyperparameters({"memory_plan": plan.to_dict()})
    events = [
        {"step": 3, "scale": 32768.0, "event": "backed_off", "detail": "fc.weight"},
        {"step": 9, "scale": 65536.0, "event": "grew", "detail": ""},
    ]
    mc.save(tmp_path / "mixed", {"precision": {"timeline": events, "master": {"w": np.zeros(2)}}}, step=9)
    with Library([str(tmp_path)], cache_dir=str(tmp_path / "cache")) as library, Server(library) as server:
        yield server


def ids(server):
    return {row["name"]: row["id"] for row in server.get("/api/runs").json()["rows"]}


def test_a_memory_plan_tells_the_trade_and_what_becomes_of_each_stage(planned):
    run = ids(planned)["planned"]

    told = planned.get(f"/api/runs/{run}/memory-plan").json()

    assert planned.get(f"/api/runs/{run}").json()["has"] == {"memory": True, "loss_scale": False}
    assert (told["budget"], told["peak"], told["chosen"]) == (700, 650, 1)
    assert [one["how"] for one in told["stages"]] == ["recompute", "recompute", "keep", "offload"]
    assert told["pts"][1] == {"bytes": 640, "slow": 0.25, "measured": True}


def test_a_loss_scale_is_read_from_the_newest_checkpoint_that_holds_its_timeline(planned):
    run = ids(planned)["mixed"]

    told = planned.get(f"/api/runs/{run}/loss-scale").json()

    assert planned.get(f"/api/runs/{run}").json()["has"]["loss_scale"] is True
    assert (told["x"], told["y"]) == ([3, 9], [32768.0, 65536.0])
    assert [(one["step"], one["detail"]) for one in told["skipped"]] == [(3, "fc.weight")]
    assert planned.get(f"/api/runs/{run}/memory-plan").status_code == 404
