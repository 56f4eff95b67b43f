"""`mckpt` says which checkpoints are one copy."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import model_checkpoint as mc
from model_checkpoint.cli.app import app


@pytest.fixture
def root(tmp_path):
    for step in (1, 2):
        mc.save(tmp_path, {"model": {"w": np.zeros(1 << 20)}, "epoch": step}, step=step, incremental=True)
    mc.save(tmp_path, {"model": {"w": np.zeros(1 << 20)}, "epoch": 3}, step=3)
    return tmp_path


def invoke(*words):
    return " ".join(CliRunner().invoke(app, list(map(str, words))).output.split())


def test_ls_says_what_is_shared_and_what_all_take_in_truth(root):
    text = invoke("ls", root)
    rows = json.loads(invoke("ls", root, "--json"))

    assert "2 of 3 share files, of which there is one copy: 25.18 MB in all, 16.79 MB on the medium" in text
    assert {row["step"]: row["shared_with"] for row in rows} == {
        1: ["step-00000002"],
        2: ["step-00000001"],
        3: [],
    }


def test_show_says_which_others_are_the_same_copy(root):
    assert "8.39 MB are one copy with step-00000001" in invoke("show", f"{root}@2")
    assert "one copy" not in invoke("show", f"{root}@3")


def test_ls_is_silent_about_sharing_where_there_is_none(tmp_path):
    mc.save(tmp_path, {"w": np.zeros(10)}, step=1)

    assert "share" not in invoke("ls", tmp_path)
