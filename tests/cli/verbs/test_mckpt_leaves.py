"""`mckpt cat`, `export` and `diff --parts`: single leaves and parts, for people and for other tools."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tests.cli.invoking import invoke
from typer.testing import CliRunner

import model_checkpoint as mc
from model_checkpoint.cli.app import app
from model_checkpoint.engine.reading import export
from model_checkpoint.errors import ChunkMismatch, OptionInvalid, StepExists, UnsupportedType, WrongReference


@pytest.fixture
def root(tmp_path):
    model = {
        "w": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
        "b": torch.tensor(1.5),
        "none": torch.zeros(0, 2),
    }
    for step in (1, 2):
        state = {"model": {**model, "b": torch.tensor(1.5 * step)}, "optimizer": {"m": np.ones(4)}, "lr": 0.5 / step}
        mc.save(tmp_path / "run", state, step=step)
    return tmp_path / "run"


def test_cat_prints_a_tensor_part_of_one_or_a_plain_value(root):
    whole = invoke("cat", f"{root}@1", "model.w").output
    part = json.loads(invoke("cat", f"{root}@1", "model.w", "--index", "1, ::2", "--json").output)

    assert "bfloat16 [2, 3]" in whole
    assert part == {"dtype": "bfloat16", "shape": [2], "values": [3.0, 5.0]}
    assert invoke("cat", root, "lr").output == "0.25\n"
    assert json.loads(invoke("cat", root, "model.b", "--json").output)["values"] == 3.0


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (("model.ww",), WrongReference, "Did you mean 'model.w'"),
        (("lr", "--index", "0"), WrongReference, "no tensor 'lr'"),
        (("model.w", "--index", "x"), OptionInvalid, "is no index"),
        (("model.w", "--index", "1:2:3:4"), OptionInvalid, "is no index"),
    ],
)
def test_cat_refuses_what_is_not_there(root, words, error, message):
    with pytest.raises(error, match=message):
        CliRunner().invoke(app, ["cat", str(root), *words], catch_exceptions=False)


def test_an_exported_file_is_read_by_safetensors_with_the_same_bits(root, tmp_path):
    target = tmp_path / "out" / "weights.safetensors"

    told = json.loads(invoke("export", f"{root}@1", target, "--parts", "model", "--json").output)

    saved = mc.load(root, step=1)["model"]
    found = load_file(target)
    assert told["tensors"] == 3
    assert found.keys() == {f"model.{name}" for name in saved}
    assert all(torch.equal(found[f"model.{name}"], tensor) for name, tensor in saved.items())
    assert found["model.w"].dtype == torch.bfloat16
    assert [path.name for path in target.parent.iterdir()] == ["weights.safetensors"]


def test_an_exported_folder_has_the_names_of_the_part(root, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "LayoutLimits", lambda: type("Small", (), {"file_bytes": 8})())

    invoke("export", root, tmp_path / "hf", "--folder")

    index = json.loads((tmp_path / "hf" / export.INDEX).read_text())
    assert index["weight_map"].keys() == {"w", "b", "none"}
    for name, file in index["weight_map"].items():
        with safe_open(tmp_path / "hf" / file, "pt") as shard:
            assert torch.equal(shard.get_tensor(name), mc.load(root)["model"][name])


def test_an_export_replaces_nothing_and_leaves_nothing_half_made(root, tmp_path):
    target = tmp_path / "there.safetensors"
    target.write_text("mine")
    with pytest.raises(StepExists, match="exists already; nothing was written"):
        export.export_file(root, target)
    assert target.read_text() == "mine"

    data = next((root / "checkpoints/step-00000002").glob("*.safetensors"))
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")
    with pytest.raises(ChunkMismatch, match="step-00000002"):
        export.export_file(root, tmp_path / "new.safetensors")
    with pytest.raises(ChunkMismatch, match="step-00000002"):
        export.export_folder(root, tmp_path / "hf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "there.safetensors"]
    assert export.export_folder(f"{root}@1", tmp_path / "hf").files == (str(tmp_path / "hf" / export.WEIGHTS),)


def test_an_export_names_what_it_cannot_say_or_find(tmp_path):
    mc.save(tmp_path, {"when": np.zeros(2, "datetime64[s]"), "w": np.ones(2)}, step=1)

    with pytest.raises(UnsupportedType, match=r"when is datetime64.*no word for"):
        export.export_file(tmp_path, tmp_path / "a")
    with pytest.raises(OptionInvalid, match="its parts are when, w"):
        export.export_file(tmp_path, tmp_path / "a", parts="model")


def test_diff_of_a_part_tells_of_that_part_alone(root):
    both = (f"{root}@1", f"{root}@2")

    assert "1 changed, 2 unchanged" in invoke("diff", *both, "--parts", "model").output
    assert invoke("diff", *both, "--parts", "optimizer").exit_code == 0
    assert json.loads(invoke("diff", *both, "--parts", "lr", "--json").output)["values"][0]["before"] == "0.5"
    with pytest.raises(mc.CheckpointException, match="has anything in"):
        mc.diff(*both, parts="modle")
