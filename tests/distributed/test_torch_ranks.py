"""Real processes joined by gloo: every kind of parallelism saves on four ranks and goes on on two and eight."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import model_checkpoint as mc
from model_checkpoint.cli.app import app

pytestmark = [pytest.mark.slow, pytest.mark.distributed]

SCENES = "tests.distributed.scenes"


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "hsdp", "tp", "fsdp+tp"])
def test_training_goes_on_as_if_it_had_never_stopped_on_as_many_ranks_fewer_or_more(zygote, tmp_path, kind):
    arguments = {"root": str(tmp_path), "kind": kind, "width": 10}  # rows that do not divide
    unbroken = zygote.run(f"{SCENES}:save_trained", 4, tmp_path / "saved", **arguments)

    same = zygote.run(f"{SCENES}:resume", 4, tmp_path / "four", **arguments, rng=True)
    fewer = zygote.run(f"{SCENES}:resume", 2, tmp_path / "two", **arguments)
    more = zygote.run(f"{SCENES}:resume", 8, tmp_path / "eight", **arguments)

    assert [one["losses"] for one in same] == [one["losses"] for one in unbroken]
    assert [one["seed"] for one in same] == [one["seed"] for one in unbroken]
    assert len({one["seed"] for one in same}) == 4
    tolerance = 0.0 if kind == "ddp" else 1e-5  # other numbers of shards add in another order
    for one in (*fewer, *more):
        assert np.allclose(one["losses"], unbroken[0]["losses"], rtol=tolerance, atol=0.0)
    assert all(one["step"] == 2 for one in (*same, *fewer, *more))
    assert all(health.ok for health in mc.verify(tmp_path))


def test_what_was_saved_on_four_ranks_goes_on_under_another_parallelism_and_alone(zygote, tmp_path):
    unbroken = zygote.run(f"{SCENES}:save_trained", 4, tmp_path / "saved", root=str(tmp_path), kind="fsdp", width=10)

    other = zygote.run(f"{SCENES}:resume", 4, tmp_path / "tp", root=str(tmp_path), kind="fsdp+tp", width=10)
    alone = mc.load(tmp_path, parts="model")

    assert all(np.allclose(one["losses"], unbroken[0]["losses"], rtol=1e-5) for one in other)
    truth = torch.load(tmp_path / "truth.pt")
    assert all(torch.equal(value, truth[name]) for name, value in alone["model"].items())


def test_show_tells_the_meshes_and_placements_of_a_model_in_two_dimensions(zygote, tmp_path):
    zygote.run(f"{SCENES}:save_trained", 4, tmp_path / "saved", root=str(tmp_path), kind="fsdp+tp", width=8)

    table = CliRunner().invoke(app, ["show", str(tmp_path)]).output
    told = json.loads(CliRunner().invoke(app, ["show", str(tmp_path), "--json"]).output)

    rows = [line for line in table.splitlines() if "dp=2 x tp=2" in line]
    assert "ranks: 4 wrote it" in table
    assert any("StridedShard(0, 2), Shard(0)" in line for line in rows)  # columns of tensor parallelism, cut again
    assert any("Shard(0), Shard(1)" in line for line in rows)
    assert any("Shard(0), Replicate()" in line for line in rows)
    assert [share["rank"] for share in told["ranks"]] == [0, 1, 2, 3]


def test_seven_rows_on_three_by_two_ranks_come_back_where_they_were(zygote, tmp_path):
    """The spec of FSDP2 over tensor parallelism tells of other rows than the ranks hold."""
    rows = zygote.run(f"{SCENES}:seven_rows", 6, tmp_path / "scene", root=str(tmp_path))

    assert sum(map(len, rows)) == 35
    assert rows[5] == [30.0, 31.0, 32.0, 33.0, 34.0]
    assert torch.equal(mc.load(tmp_path)["model"]["0.weight"], torch.arange(35.0).reshape(7, 5))


@pytest.mark.parametrize("shape", [(8, 8), (7, 5), (3, 2)])
def test_a_tensor_saved_in_one_layout_is_loaded_in_any_other(zygote, tmp_path, shape):
    assert zygote.run(f"{SCENES}:reshard_all", 4, tmp_path / "scene", root=str(tmp_path), shape=shape) == [True] * 4


@pytest.mark.parametrize(("before", "after"), [(2, 6), (6, 4), (4, 3), (3, 8), (8, 2)])
def test_tensors_in_any_layout_are_loaded_in_any_other(zygote, tmp_path, before, after):
    """Meshes, placements, shapes and kinds are others each time; a failure tells the seed."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}, {before} to {after} ranks")
    arguments = {"root": str(tmp_path), "seed": seed, "turns": 4}

    zygote.run(f"{SCENES}:save_random_layouts", before, tmp_path / "save", **arguments)
    loaded = zygote.run(f"{SCENES}:load_random_layouts", after, tmp_path / "load", **arguments)

    assert loaded == [True] * after


def test_training_goes_on_while_sharded_parameters_are_copied_and_saved(zygote, tmp_path):
    assert zygote.run(f"{SCENES}:save_lazily", 3, tmp_path / "scene", root=str(tmp_path)) == [True] * 3


def test_ranks_that_save_alone_are_told_which_argument_they_meant(zygote, tmp_path):
    told = zygote.run(f"{SCENES}:save_alone", 2, tmp_path / "scene", root=str(tmp_path))

    assert told.count("saved") == 1
    assert "This program has 2 ranks" in max(told, key=len)
    assert "coordinator=TorchCoordinator()" in max(told, key=len)


def test_groups_of_some_ranks_save_apart(zygote, tmp_path):
    assert zygote.run(f"{SCENES}:save_in_halves", 4, tmp_path / "scene", root=str(tmp_path)) == [2] * 4


def test_roots_that_are_not_shared_are_found_out(zygote, tmp_path):
    told = zygote.run(f"{SCENES}:save_to_own_folder", 2, tmp_path / "scene", root=str(tmp_path))

    assert all(text.startswith("RootNotShared: rank 1 of 2: ") for text in told)


def test_the_example_of_the_page_runs_under_torchrun(tmp_path):
    page = (Path(__file__).parent.parent.parent / "docs" / "distributed.md").read_text()
    program = page.split('```python title="train.py"\n')[1].split("```")[0]
    (tmp_path / "train.py").write_text(program)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}

    for world in (2, 3):  # the second start has another world size, and goes on all the same
        start = [*command, f"--nproc-per-node={world}", "train.py"]
        done = subprocess.run(start, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr

    assert [info.step for info in mc.list_checkpoints(tmp_path / "run")] == [20, 10]
    assert [info.world_size for info in mc.list_checkpoints(tmp_path / "run")] == [3, 2]
