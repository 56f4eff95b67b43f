"""The `mckpt` command, run as a person runs it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from tests.cli.invoking import invoke

import model_checkpoint as mc


@pytest.fixture
def root(tmp_path):
    for step in (1, 2):
        state = {"model": {"w": np.full(4, step, dtype=np.float32), "b": np.zeros(2)}, "epoch": step}
        mc.save(tmp_path / "run", state, step=step, metrics={"val_loss": 1 / step})
    return tmp_path / "run"


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "model_checkpoint", *map(str, words)], capture_output=True, text=True, check=False
    )


def test_ls_lists_newest_first_with_metrics(root):
    lines = invoke("ls", root).output.splitlines()
    rows = json.loads(invoke("ls", root, "--json").output)

    assert [row["step"] for row in rows] == [2, 1]
    assert any("step-00000002" in line and "0.5*" in line for line in lines)


def test_ls_calls_nothing_the_best_that_was_saved_without_a_claim(root):
    apart = {"catalog": {"contends": False}}
    mc.save(root, {"epoch": 3}, step=3, metrics={"val_loss": 0.1}, metadata=apart)

    output = invoke("ls", root).output

    assert "0.5*" in output
    assert "0.1*" not in output


def test_show_tells_parts_tensors_and_what_a_resume_would_lack(root):
    text = invoke("show", f"{root}@1", "--tensors").output
    data = json.loads(invoke("show", f"{root}@1", "--json").output)

    assert "model.w" in text
    assert "a resume would lack" in text
    assert {t["name"] for t in data["tensors"]} == {"model.w", "model.b"}
    assert "optimizer" in data["lacking"]


def test_verify_leaves_with_1_and_names_the_damage(root):
    assert invoke("verify", root).exit_code == 0
    path = next((root / "checkpoints/step-00000002").glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")

    result = invoke("verify", root)
    data = json.loads(invoke("verify", root, "--json").output)

    assert result.exit_code == 1
    assert "step-00000002" in result.output
    assert "model." in result.output
    assert [entry["ok"] for entry in data] == [False, True]


def test_diff_tells_what_changed_and_by_how_much(root):
    result = invoke("diff", f"{root}@1", f"{root}@2")
    data = json.loads(invoke("diff", f"{root}@1", f"{root}@2", "--json").output)

    assert result.exit_code == 1
    assert "1 changed, 1 unchanged" in result.output
    assert (data["changed"][0]["name"], data["changed"][0]["max_change"]) == ("model.w", 1.0)
    assert invoke("diff", f"{root}@1", f"{root}@1").exit_code == 0


def test_diff_begins_with_what_is_no_number_any_more_in_table_and_json(tmp_path):
    mc.save(tmp_path, {"a": np.ones(3), "b": np.zeros(3), "c": np.ones(3)}, step=1)
    mc.save(tmp_path, {"a": np.full(3, 1.5), "b": np.ones(3), "c": np.array([1, np.nan, np.inf])}, step=2)

    told = invoke("diff", f"{tmp_path}@1", f"{tmp_path}@2").output
    data = json.loads(invoke("diff", f"{tmp_path}@1", f"{tmp_path}@2", "--json").output)

    words = ["2 not finite", "from zero", "50.000%"]
    assert sorted(words, key=told.index) == words
    assert [change["name"] for change in data["changed"]] == ["c", "b", "a"]
    assert [change["relative"] for change in data["changed"]] == [0.0, "inf", 0.5]
    assert [change["spoiled"] for change in data["changed"]] == [2, 0, 0]


def test_rm_undo_and_gc(root):
    assert "moved to the trash" in invoke("rm", f"{root}@2").output
    assert [info.step for info in mc.list_checkpoints(root)] == [1]
    assert [item["name"] for item in json.loads(invoke("trash", root, "--json").output)] == ["step-00000002"]
    assert "step-00000002" in invoke("trash", root).output
    assert "brought back" in invoke("restore", f"{root}@2").output
    assert [info.step for info in mc.list_checkpoints(root)] == [2, 1]
    invoke("rm", f"{root}@2")
    assert "1 deletion waits for the end of its grace, for 24 hours" in invoke("gc", root).output
    assert 86_000 < json.loads(invoke("gc", root, "--json").output)["waiting"][0]["seconds"] <= 86_400
    assert "and 1 old deletion (" in invoke("gc", root, "--trash").output
    assert "grace" not in invoke("gc", root).output
    assert not list((root / ".trash").iterdir())


def test_a_dry_run_of_rm_moves_nothing(root, mckpt):
    told = mckpt("rm", f"{root}@1", f"{root}@2", "--dry-run")
    data = json.loads(mckpt("rm", f"{root}@1", f"{root}@2", "--dry-run", "--json").out)

    assert (told.code, told.out.replace("\n", "").count("would go to the trash")) == (0, 2)
    assert [one["step"] for one in data] == [1, 2]
    assert [info.step for info in mc.list_checkpoints(root)] == [2, 1]
    assert mckpt("rm", f"{root}@1", f"{root}@9", "--dry-run").code == 3


def test_a_dry_run_of_gc_removes_nothing(root):
    invoke("rm", f"{root}@2")

    told = invoke("gc", root, "--trash", "--dry-run").output

    assert "would remove 0 dead attempts and 1 old deletion (" in told
    assert "brought back" in invoke("restore", f"{root}@2").output


def test_rm_without_a_choice_removes_nothing(root):
    result = run("rm", root)

    assert result.returncode == 2
    assert "say which checkpoint" in result.stderr
    assert len(mc.list_checkpoints(root)) == 2


def test_an_error_is_one_message_without_a_traceback(tmp_path):
    result = run("ls", tmp_path / "nothing")

    assert result.returncode == 3
    assert "no such checkpoint root" in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr


def test_names_cannot_drive_the_terminal(tmp_path):
    mc.save(
        tmp_path,
        {"\x1b[31mred\x07": np.zeros(2)},
        step=1,
        metrics={"\x1b]0;x": 1.0},
        metadata={"note": "[bold]\x1b[2J"},
    )

    output = invoke("ls", tmp_path).output + invoke("show", tmp_path, "--tensors").output

    assert "\x1b[31m" not in output
    assert "\x1b[2J" not in output
    assert "\x07" not in output


def test_names_that_read_like_codes_of_pictures_are_shown_as_they_are(tmp_path):
    mc.save(tmp_path, {":bug:": np.zeros(2)}, step=1, metrics={":fire:": 1.0})

    output = invoke("show", tmp_path, "--tensors").output

    assert ":bug:" in output
    assert ":fire:" in output


def test_diff_leaves_with_1_when_only_plain_values_differ(tmp_path):
    for step, rate in ((1, 0.5), (2, 0.25)):
        mc.save(tmp_path, {"w": np.zeros(2), "[red]lr": rate}, step=step)

    result = invoke("diff", f"{tmp_path}@1", f"{tmp_path}@2")
    data = json.loads(invoke("diff", f"{tmp_path}@1", f"{tmp_path}@2", "--json").output)

    assert result.exit_code == 1
    assert "[red]lr" in result.output
    assert "0 changed, 1 unchanged; 1 plain values differ" in result.output
    assert data["values"] == [{"name": "[red]lr", "before": "0.5", "after": "0.25"}]


def test_the_version_is_told():
    assert invoke("--version").output == f"mckpt {mc.__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_learn_to_complete_verbs(shell):
    done = run("--show-completion", shell)

    assert (done.returncode, "_MCKPT_COMPLETE" in done.stdout) == (0, True)


def test_several_checkpoints_are_removed_at_once_or_none(root):
    assert run("rm", f"{root}@1", f"{root}@9").returncode == 3
    assert len(mc.list_checkpoints(root)) == 2

    done = invoke("rm", f"{root}@1", f"{root}@2", f"{root}@1", "--json")

    assert [row["step"] for row in json.loads(done.output)] == [1, 2]
    assert mc.list_checkpoints(root) == []


def test_ls_of_a_folder_of_runs_lists_the_runs(root):
    mc.save(root.parent / "other", {"a": 1}, step=7)
    (root.parent / "notes").mkdir()

    lines = invoke("ls", root.parent).output
    rows = json.loads(invoke("ls", root.parent, "--json").output)

    assert [(row["root"], row["checkpoints"], row["newest"]["step"]) for row in rows] == [
        (str(root.parent / "other"), 1, 7),
        (str(root), 2, 2),
    ]
    assert "val_loss=0.5" in lines
    assert "notes" not in lines


def test_what_is_no_root_is_told_and_leaves_with_3(tmp_path):
    done = run("ls", tmp_path)

    assert done.returncode == 3
    assert "no committed checkpoint here, nor in a folder right below" in done.stderr.replace("\n", " ")


def test_a_root_whose_checkpoints_are_all_in_the_trash_is_a_root(root):
    invoke("rm", f"{root}@1", f"{root}@2")

    assert (run("ls", root).returncode, "no committed checkpoint yet" in run("ls", root).stdout) == (0, True)
