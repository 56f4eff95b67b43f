"""mckpt convert and mckpt adopt: what they say, what they leave, and how they end."""

import json
import subprocess

import pytest
import torch
from tests.cli.rendering.terminals import MCKPT

import model_checkpoint as mc


@pytest.fixture
def theirs(tmp_path):
    torch.save({"net": {"w": torch.ones(2)}, "epoch": 3}, tmp_path / "step-12.pt")
    return tmp_path / "step-12.pt"


def test_a_file_is_converted_there_and_back(mckpt, theirs, tmp_path):
    made = mckpt("convert", theirs, tmp_path / "root")
    back = mckpt("convert", f"{tmp_path / 'root'}@12", tmp_path / "out.pt", "--to", "pt", "--part", "net", "--json")

    assert (made.code, back.code) == (0, 0)
    assert "step-00000012: native from" in made.out.replace("\n", "")
    told = json.loads(back.out)
    assert (told["source_format"], told["to"], told["tensors"]) == ("native", "pt", 1)
    assert torch.load(tmp_path / "out.pt")["net"]["w"].tolist() == [1.0, 1.0]


def test_a_process_of_its_own_brings_what_a_pt_file_needs(tmp_path):
    mc.save(tmp_path / "root", {"w": torch.ones(2)}, step=1)
    words = ["convert", tmp_path / "root", tmp_path / "out.pt", "--to", "pt"]

    done = subprocess.run([*MCKPT, *map(str, words)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert torch.load(tmp_path / "out.pt")["w"].tolist() == [1.0, 1.0]


def test_what_tells_no_step_is_adopted_without_one(mckpt, tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "weights.pt")

    told = mckpt("adopt", tmp_path, tmp_path / "root").out

    assert "adopted  weights  no step  from" in told
    assert "None" not in told


def test_a_source_that_cannot_be_read_ends_with_words_and_leaves_nothing(mckpt, tmp_path):
    (tmp_path / "torn.pt").write_bytes(b"PK\x03\x04")

    ended = mckpt("convert", tmp_path / "torn.pt", tmp_path / "root", "--step", "3")

    assert ended.code == 2
    assert "cannot be read without running code, or is torn" in " ".join(ended.err.split())
    assert not (tmp_path / "root").exists()


def test_adopting_ends_with_1_if_something_could_not_be_read(mckpt, theirs, tmp_path):
    fine = mckpt("adopt", tmp_path)
    (tmp_path / "torn.pt").write_bytes(b"PK\x03\x04")
    torn = mckpt("adopt", tmp_path, "--json")

    assert (fine.code, torn.code) == (0, 1)
    assert "1 adopted, 0 present, 0 failed" in fine.out
    told = json.loads(torn.out)
    assert told["present"] == ["step-12"]
    assert list(told["failed"]) == [str(tmp_path / "torn.pt")]
    assert mc.load(tmp_path, step=12)["epoch"] == 3
