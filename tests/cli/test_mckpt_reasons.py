"""Why a checkpoint is kept: list and detail of the server, `ls` and `show` say the same, by the policy of its run."""

import json

import numpy as np
import pytest
from tests.ground.served import Server

import model_checkpoint as mc
from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker
from model_checkpoint.api.library.shelves import Library

KEEP = [mc.last(2), mc.best("val_loss"), mc.every(4)]
LOSSES = [0.9, 0.8, 0.2, 0.6, 0.5, 0.4, 0.3, 0.35]


@pytest.fixture
def pruned(tmp_path):
    """A folder with the catalog of a run and its root, after every save was followed by a prune; one is pinned."""
    with ExperimentTracker("baseline", database_url=f"sqlite:///{tmp_path}/experiments.db") as run:
        manager = EnhancedCheckpointManager(run, tmp_path / "root", keep=KEEP)
        for step, loss in enumerate(LOSSES):
            id = manager.save_checkpoint({"w": np.full(2, loss)}, step=step, val_loss=loss)
            if step == 1:
                manager.pin(id)
    run.connection.close()
    return tmp_path


def rules(line):
    return [one["rule"] for one in line["reasons"]]


def test_all_doors_tell_the_reasons_of_the_policy_in_force(pruned, mckpt, tmp_path):
    with Library([str(pruned)], cache_dir=str(tmp_path / "cache")) as library, Server(library) as server:
        listed = {line["step"]: line for line in server.get("/api/checkpoints").json()["rows"]}
        details = {step: server.get(f"/api/checkpoints/{line['id']}").json() for step, line in listed.items()}
    words = ("--database", pruned / "experiments.db", "--json")
    ls = {line["step"]: line for line in json.loads(mckpt("ls", pruned / "root", *words).out)}
    names = {step: f"{pruned}/root@{line['prefix']}" for step, line in ls.items()}
    shown = {step: json.loads(mckpt("show", name, *words).out) for step, name in names.items()}

    assert {step: rules(line) for step, line in listed.items()} == {
        0: ["every 4 steps"],
        1: ["pinned"],
        2: ["best(val_loss)", "best 1 by val_loss"],
        4: ["every 4 steps"],
        6: ["last 2"],
        7: ["newest", "last 2"],
    }
    for door in (details, ls, shown):
        assert {step: line["reasons"] for step, line in door.items()} == {
            step: line["reasons"] for step, line in listed.items()
        }


def test_show_tells_people_why(pruned, mckpt):
    told = mckpt("show", f"{pruned}/root@best:val_loss", "--database", pruned / "experiments.db").out

    assert "kept by:" in told
    assert "best(val_loss): best val_loss 0.2" in told


def test_without_a_catalog_no_reasons_are_made_up(tmp_path, mckpt):
    mc.save(tmp_path / "plain", {"a": 1}, step=1)

    (line,) = json.loads(mckpt("ls", tmp_path / "plain", "--json").out)
    assert line["reasons"] is None
