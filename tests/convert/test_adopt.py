"""What trainers have left in folders is adopted: names, steps, metrics; twice is once; what is torn is named."""

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp

import model_checkpoint as mc
from model_checkpoint.convert import adopt, convert
from model_checkpoint.errors import CheckpointNotFound


def hf_checkpoint(folder, step, *, loss):
    folder.mkdir(parents=True)
    safetensors.torch.save_file({"w": torch.full((2,), float(step))}, folder / "model.safetensors")
    model = torch.nn.Linear(1, 1)
    torch.save(torch.optim.AdamW(model.parameters()).state_dict(), folder / "optimizer.pt")
    torch.save({"last_epoch": step}, folder / "scheduler.pt")
    torch.save({"cpu": torch.get_rng_state()}, folder / "rng_state.pth")
    torch.save(object.__new__(type("TrainingArguments", (), {})).__class__.__name__, folder / "training_args.bin")
    history = [
        {"step": 1, "loss": 9.0},
        {"step": step, "eval_loss": loss, "epoch": 1.0},
        {"step": step, "loss": float("nan")},
    ]
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": history}))
    (folder / "config.json").write_text("{}")


def lightning_checkpoint(path, step, *, score):
    path.parent.mkdir(parents=True, exist_ok=True)
    watched = {"ModelCheckpoint{...}": {"monitor": "val_loss", "current_score": torch.tensor(score)}}
    state = {
        "pytorch-lightning_version": "2.5.0",
        "epoch": 1,
        "global_step": step,
        "state_dict": {"layer.w": torch.full((2,), float(step))},
        "optimizer_states": [{"state": {}, "param_groups": [{"lr": 0.1, "params": [0]}]}],
        "callbacks": watched,
    }
    torch.save(state, path)


@pytest.fixture
def left(tmp_path):
    """A folder as several trainers leave it."""
    folder = tmp_path / "left"
    hf_checkpoint(folder / "hf" / "checkpoint-500", 500, loss=0.5)
    hf_checkpoint(folder / "hf" / "checkpoint-1000", 1000, loss=0.25)
    lightning_checkpoint(folder / "lightning" / "epoch=1-step=20-val_loss=0.31.ckpt", 20, score=0.3125)
    with warnings.catch_warnings(action="ignore"):
        dcp.save({"model": {"w": torch.ones(3)}}, checkpoint_id=str(folder / "titan" / "step-7"))
    torch.save({"w": torch.zeros(1)}, folder / "final.pt")
    (folder / "log.txt").write_text("not a checkpoint")
    (folder / "lightning" / "last.ckpt").symlink_to("epoch=1-step=20-val_loss=0.31.ckpt")
    return folder


def snapshot(folder):
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_every_checkpoint_keeps_its_name_step_and_metrics(left, tmp_path):
    before = snapshot(left)

    report = adopt(left, tmp_path / "root")

    assert report.ok, report
    told = {one.name: (one.format, one.step, dict(one.metrics)) for one in report.adopted}
    assert told == {
        "final": ("pt", None, {}),
        "hf.checkpoint-500": ("trainer", 500, {"eval_loss": 0.5}),
        "hf.checkpoint-1000": ("trainer", 1000, {"eval_loss": 0.25}),
        "lightning.epoch_1-step_20-val_loss_0.31": ("pt", 20, {"val_loss": 0.3125}),
        "titan.step-7": ("dcp", 7, {}),
    }
    assert snapshot(left) == before
    assert sorted(path.rsplit("/", 1)[1] for path in report.ignored) == ["last.ckpt", "log.txt"]
    assert "5 adopted, 0 present, 0 failed" in str(report)

    best = mc.load(tmp_path / "root", best="eval_loss")
    assert best["model"]["w"].tolist() == [1000.0, 1000.0]
    assert best["scheduler"] == {"last_epoch": 1000}
    assert set(best) == {"model", "optimizer", "scheduler", "rng", "trainer_state", "hf_files"}
    assert mc.load(tmp_path / "root", step=20)["state_dict"]["layer.w"].tolist() == [20.0, 20.0]
    assert all(health.ok for health in mc.verify(tmp_path / "root"))


def test_twice_is_once_and_what_is_new_is_added(left, tmp_path):
    adopt(left, tmp_path / "root")
    before = snapshot(tmp_path / "root" / "checkpoints")

    again = adopt(left, tmp_path / "root")
    assert (again.adopted, len(again.present), again.ok) == ((), 5, True)
    assert snapshot(tmp_path / "root" / "checkpoints") == before

    lightning_checkpoint(left / "lightning" / "epoch=2-step=40.ckpt", 40, score=0.25)
    assert [one.name for one in adopt(left, tmp_path / "root").adopted] == ["lightning.epoch_2-step_40"]


def test_the_folder_itself_can_be_the_root(left):
    first = adopt(left)
    second = adopt(left)

    assert (len(first.adopted), len(second.present), second.adopted) == (5, 5, ())
    assert len(mc.list_checkpoints(left)) == 5


def test_a_torn_or_foreign_file_is_named_and_the_rest_adopted(left, tmp_path):
    torn = left / "torn.ckpt"
    torn.write_bytes((left / "final.pt").read_bytes()[:300])
    torch.save({"net": torch.nn.Linear(1, 1)}, left / "module.pt")
    (left / "titan" / "step-7" / "__0_0.distcp").write_bytes(b"")

    report = adopt(left, tmp_path / "root")

    assert not report.ok
    assert len(report.adopted) == 4
    assert {path.rsplit("/", 1)[1] for path in report.failed} == {"torn.ckpt", "module.pt", "step-7"}
    assert "or is torn" in report.failed[str(torn)]
    assert "SourceUnreadable" in report.failed[str(left / "module.pt")]
    assert f"failed   {torn}: " in str(report)


def test_what_changed_since_is_told_and_what_was_adopted_kept(left, tmp_path):
    adopt(left, tmp_path / "root")
    torch.save({"w": torch.full((1,), 9.0)}, left / "final.pt")
    mc.save(tmp_path / "root", {"mine": 1}, name="other")
    torch.save({"w": torch.ones(1)}, left / "other.pt")

    report = adopt(left, tmp_path / "root")

    assert "has changed since it was adopted as final" in report.failed[str(left / "final.pt")]
    assert "a checkpoint of another origin is called other" in report.failed[str(left / "other.pt")]
    assert mc.load(tmp_path / "root", name="final")["w"].tolist() == [0.0]
    assert mc.load(tmp_path / "root", name="other") == {"mine": 1}


def test_one_checkpoint_or_no_folder(left, tmp_path):
    assert [one.name for one in adopt(left / "hf" / "checkpoint-500", tmp_path / "root").adopted] == ["checkpoint-500"]
    with pytest.raises(CheckpointNotFound, match="is no folder"):
        adopt(tmp_path / "nowhere", tmp_path / "root")
    shutil.rmtree(left / "hf")
    assert len(adopt(left, tmp_path / "root").adopted) == 3


@pytest.mark.slow
def test_what_real_trainers_leave_is_adopted_and_goes_back_to_them(tmp_path):
    program = Path(__file__).parent / "trainer_programs.py"
    done = subprocess.run(
        [sys.executable, program, tmp_path / "left"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    report = adopt(tmp_path / "left", tmp_path / "root")

    assert report.ok, report
    assert [(one.format, one.step) for one in report.adopted] == [("trainer", 2), ("pt", 2), ("pt", 4)]
    assert "loss" in report.adopted[0].metrics
    assert "val_loss" in report.adopted[1].metrics
    assert "hyper_parameters" in mc.load(tmp_path / "root", name=report.adopted[1].name)
    convert(f"{tmp_path / 'root'}@hf.checkpoint-2", tmp_path / "back", to="hf")
    theirs, back = (
        safetensors.torch.load_file(f / "model.safetensors")
        for f in (tmp_path / "left/hf/checkpoint-2", tmp_path / "back")
    )
    assert theirs.keys() == back.keys()
    assert all(torch.equal(theirs[name], back[name]) for name in theirs)
    assert (tmp_path / "back" / "config.json").read_bytes() == (
        tmp_path / "left/hf/checkpoint-2/config.json"
    ).read_bytes()
