"""`mckpt show`: parts, histograms, metrics over time, the run's place, ranks, and what a resume would lack."""

import json

import numpy as np
import pytest
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker
from model_checkpoint.cli.rendering.charts import bars, plot, sparkline
from model_checkpoint.distributed import Shard


@pytest.fixture
def root(tmp_path):
    for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0)):
        model = {"w": np.array([-1.0, 0.0, 0.0, 1.0]), "bad": np.array([1.0, np.nan, np.inf]), "zero": np.zeros(2)}
        mc.save(tmp_path, {"model": model, "words": np.array(["a"])}, step=step, metrics={"val_loss": loss})
    return tmp_path


def test_tensors_are_shown_with_how_their_values_lie(root, mckpt):
    lines = {line.split()[0]: line for line in mckpt("show", root, "--tensors").out.splitlines() if line.strip()}

    assert bars([1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1]) in lines["model.w"]
    assert "1 NaN, 1 Inf" in lines["model.bad"]
    assert "all zero" in lines["model.zero"]
    assert "no numbers" in lines["words"]


def test_values_are_read_only_when_asked_for(root, mckpt):
    (data,) = (root / "checkpoints/step-00000003").glob("*.safetensors")
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")

    listed = mckpt("show", root, "--tensors", "--no-values")

    assert (listed.code, "histogram" in listed.out, "model.w" in listed.out) == (0, False, True)
    assert mckpt("show", root, "--tensors").code == 1


def test_parts_narrow_what_is_listed_and_read(root, mckpt):
    shown = json.loads(mckpt("show", root, "--tensors", "--parts", "model.w", "--json").out)

    assert [one["name"] for one in shown["tensors"]] == ["model.w"]
    assert shown["tensors"][0]["figures"]["zeros"] == 2


def test_metrics_are_drawn_over_the_checkpoints_of_the_root(root, mckpt):
    (line,) = [line for line in mckpt("show", root).out.splitlines() if line.startswith("val_loss")]

    assert sparkline([3.0, 1.0, 2.0]) in line
    assert "1 at step 2" in line


def test_the_place_of_a_run_and_its_doubts_are_told(tmp_path, mckpt):
    for _ in mc.Run(tmp_path / "exact", data=[1, 2, 3], every=2, weights={"w": np.zeros(2)}):
        pass
    mc.save(
        tmp_path / "doubt",
        {"run": {"place": {"step": 7, "epoch": 2, "batch": 1, "base": 0, "begun": True}, "reasons": ["the [red]GPU"]}},
        step=7,
    )

    assert (
        "run: step 2, epoch 0, batch 2 of it; a resume goes on bit for bit" in mckpt("show", f"{tmp_path}/exact@2").out
    )
    assert "run: step 7, epoch 2, batch 1 of it; a resume goes on not bit for bit: the [red]GPU" in (
        mckpt("show", tmp_path / "doubt").out
    )
    assert json.loads(mckpt("show", tmp_path / "doubt", "--json").out)["run"] == {
        "step": 7,
        "epoch": 2,
        "batch": 1,
        "exact": False,
        "reasons": ["the [red]GPU"],
    }


def test_ranks_and_how_tensors_lie_on_them_are_told(tmp_path, mckpt):
    whole = np.arange(12.0).reshape(4, 3)

    def work(ranks):
        rows = slice(2 * ranks.rank, 2 * ranks.rank + 2)
        part = Shard(whole[rows], global_shape=(4, 3), offsets=(2 * ranks.rank, 0))
        return mc.save(tmp_path, {"table": part, "same": np.ones(2)}, step=1, coordinator=ranks)

    all_well(on_ranks(2, work))

    shown = mckpt("show", tmp_path, "--tensors").out
    told = json.loads(mckpt("show", tmp_path, "--tensors", "--json").out)

    assert "ranks: 2 wrote it" in shown
    assert "in parts, on 2 ranks" in shown
    assert [share["rank"] for share in told["ranks"]] == [0, 1]
    assert {one["name"]: one["figures"]["max"] for one in told["tensors"]} == {"table": 11.0, "same": 1.0}
    assert "ranks" in mckpt("ls", tmp_path).out.splitlines()[1]


def test_what_a_resume_lacks_comes_with_the_consequence(root, mckpt):
    shown = mckpt("show", root).out

    assert "a resume would lack: optimizer, scheduler, rng" in shown
    assert "without optimizer its moments begin at zero" in shown


def test_a_chart_leaves_gaps_where_there_is_no_number():
    lines = plot([0, 1, 2, 3], [0.0, float("nan"), float("inf"), 1.0], width=10, height=2)

    assert len(lines) == 3
    assert lines[0].startswith("1 ")
    assert plot([], []) == ["(nothing that is a number)"]
    assert sparkline([float("nan")] * 3) == "   "
    assert len(sparkline(range(1000), width=20)) == 20


def test_what_a_backend_wrote_is_shown_as_what_it_is(tmp_path, mckpt):
    with ExperimentTracker("one", database_url=f"sqlite:///{tmp_path}/runs.db") as run:
        manager = EnhancedCheckpointManager(run, tmp_path / "root", storage_backend="safetensors")
        manager.save_checkpoint({"w": np.ones(3)}, step=4, val_loss=0.5, save_rng=False)

    shown = mckpt("show", tmp_path / "root", "--tensors")
    told = json.loads(mckpt("show", tmp_path / "root", "--json").out)

    assert shown.code == 0
    assert "written by the storage backend safetensors" in shown.out
    assert "checkpoint.safetensors" in shown.out
    assert "a resume" not in shown.out  # nobody but the backend can say what it lacks
    assert (told["backend"], told["info"]["step"]) == ("safetensors", 4)
    assert [one["name"] for one in told["files"]] == ["checkpoint.safetensors"]
