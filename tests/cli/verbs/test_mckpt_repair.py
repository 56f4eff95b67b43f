"""`mckpt repair`, and what the other verbs tell of parity and mirrors."""

import json

import msgspec
import numpy as np
import pytest
from tests.cli.invoking import invoke

import model_checkpoint as mc
from model_checkpoint.manifest import decode, encode


@pytest.fixture
def root(tmp_path):
    state = {"model": {"w": np.random.default_rng(0).standard_normal(5000)}}
    mc.save(tmp_path / "run", state, step=1, parity="xor", mirror=tmp_path / "mirror")
    mc.save(tmp_path / "run", {"epoch": 2}, step=2)
    mc.finish_saves()
    return tmp_path / "run"


def data_file(root):
    (path,) = (root / "checkpoints/step-00000001").glob("*.safetensors")
    return path


def test_a_lost_file_comes_back(root):
    before = data_file(root).read_bytes()
    data_file(root).unlink()
    assert invoke("verify", root).exit_code == 1

    result = invoke("repair", root)

    assert result.exit_code == 0
    assert "parity (" in result.output
    assert "2 examined, 1 file repaired, 0 chunks lost" in result.output
    assert data_file(root).read_bytes() == before
    assert invoke("verify", root).exit_code == 0


def test_a_dry_run_leaves_it_lost_and_says_what_could_be_done(root):
    name = data_file(root).name
    data_file(root).unlink()

    told = json.loads(invoke("repair", f"{root}@1", "--dry-run", "--json").output)

    assert told["dry_run"]
    assert [one["file"] for one in told["repaired"]] == [name]
    assert not list((root / "checkpoints/step-00000001").glob("*.safetensors"))


def test_what_is_lost_is_named_and_leaves_with_1(tmp_path):
    mc.save(tmp_path, {"model": {"weights[red]": np.arange(9.0)}}, step=1)
    data_file(tmp_path).write_bytes(b"")

    result = invoke("repair", tmp_path)

    assert result.exit_code == 1
    assert "tensors model.weights[red]" in result.output
    assert "lost: step-00000001" in result.output


def test_a_source_is_named_on_the_command_line(root):
    for path in (root / "checkpoints/step-00000001").iterdir():
        if path.name != "manifest.json":
            path.unlink()

    result = invoke("repair", root, "--source", root.parent / "mirror")

    assert result.exit_code == 0
    assert "second store" in result.output


def test_what_cannot_be_read_here_is_told_and_leaves_with_1(root):
    path = root / "checkpoints/step-00000001/manifest.json"
    newer = msgspec.structs.replace(decode(path.read_bytes(), "here"), features=("from-the-future",))
    path.write_bytes(encode(newer))

    result = invoke("repair", root)

    assert result.exit_code == 1
    assert "not readable here" in result.output
    assert "from-the-future" in result.output


def test_ls_and_show_tell_of_parity_and_mirror(root):
    assert "xor" in invoke("ls", root).output
    shown = invoke("show", f"{root}@1").output
    assert "parity: xor" in shown
    assert f"mirror: {root.parent / 'mirror'}" in shown

    next((root / "checkpoints/step-00000001").glob("*.parity")).unlink()

    assert "xor, missing" in invoke("ls", root).output
    verdict = invoke("verify", root)
    assert verdict.exit_code == 1
    assert "parity is not" in verdict.output
