"""What a newcomer reads first is true: killed and started again, its programs end as if they had not been."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.docs.served_pages import serving

import model_checkpoint as mc

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def program(page, title):
    return (DOCS / page).read_text().split(f'```python title="{title}"\n')[1].split("```")[0]


def python(code, folder):
    folder.mkdir(exist_ok=True)
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)


def killed_after(line, when, code):
    """The same program, but it kills itself at ``when`` once ``line`` has run."""
    found = re.search(rf"^( *){re.escape(line)}.*\n", code, re.MULTILINE)
    kill = f"{found[1]}if {when}:\n{found[1]}    __import__('os').kill(__import__('os').getpid(), 9)\n"
    return code[: found.end()] + kill + code[found.end() :]


def same(one, other):
    one, other = mc.load(one), mc.load(other)
    assert one["model"].keys() == other["model"].keys()
    return all(torch.equal(one["model"][key], other["model"][key]) for key in one["model"])


def assert_ends_the_same(code, killed_code, folder, root):
    """A program that is killed and started again leaves under ``root`` what one that never was leaves."""
    whole = python(code, folder / "whole")
    killed = python(killed_code, folder / "killed")
    again = python(code, folder / "killed")

    assert (whole.returncode, killed.returncode, again.returncode) == (0, -9, 0), again.stderr
    assert same(folder / "whole" / root, folder / "killed" / root)


def test_the_quick_start_killed_and_started_again_ends_with_the_same_weights(tmp_path):
    code = blocks("quickstart.md")[0]

    assert_ends_the_same(code, killed_after("run.log", "run.step == 50", code), tmp_path, "runs/a")


def test_the_commands_of_the_quick_start_run_as_they_stand_there(tmp_path):
    """But for those that install, and those that kill, which have a test of their own."""
    page = (DOCS / "quickstart.md").read_text()
    before = page.split("## Kill it")[0]
    shown = re.findall(r"```bash\n(mckpt .*)\n```", before) + re.findall(r"`(mckpt [^`]+)`", before)
    (serve,) = [one for one in shown if one.startswith("mckpt serve")]
    commands = [one for one in shown if one != serve]
    assert python(blocks("quickstart.md")[0], tmp_path).returncode == 0

    told = [
        subprocess.run(
            [sys.executable, "-c", "from model_checkpoint.cli.main import run; run()", *one.split()[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        for one in commands
    ]

    with serving(serve, tmp_path) as (rows, said):
        assert [(row["name"], row["step"], row["n"]) for row in rows] == [("a", 100, 5)]
        assert "127.0.0.1" in said  # this machine alone, as the page says

    assert [one.split()[1] for one in commands] == ["ls", "show", "diff", "verify"]
    assert [done.returncode for done in told] == [0, 0, 1, 0]  # what moved is a difference
    assert all(str(step) in told[0].stdout for step in (20, 40, 60, 80, 100))


def test_killed_and_started_again_by_the_shell_as_it_stands_there_it_goes_on_and_ends(tmp_path):
    page = (DOCS / "quickstart.md").read_text().split("## Kill it")[1]
    epochs = re.search(r"`(epochs=\d+)`", page)[1]
    (tmp_path / "train.py").write_text(blocks("quickstart.md")[0].replace("epochs=5", epochs))
    script = re.search(r"```bash\n(.*?)```", page, re.DOTALL)[1].replace("python ", f"{sys.executable} ")

    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )

    assert done.returncode == 0, done.stderr
    resumed = re.search(r"resumed at step (\d+)", done.stderr)
    assert 200 <= int(resumed[1]) < 400, done.stderr
    assert mc.list_checkpoints(tmp_path / "runs/a")[0].step == 400


def test_the_loop_of_ones_own_killed_and_started_again_ends_with_the_same_weights(tmp_path):
    imports, _, own = blocks("recipes.md")[:3]
    code = f"{imports}\nmodel = torch.nn.Linear(8, 1)\noptimizer = torch.optim.AdamW(model.parameters())\n{own}"

    assert_ends_the_same(code, killed_after("mc.save", "step == 4", code), tmp_path, "runs/own")


@pytest.mark.distributed
def test_the_recipe_for_many_ranks_goes_on_at_another_number_of_them(tmp_path):
    (tmp_path / "train.py").write_text(program("recipes.md", "train.py"))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}

    for world in (2, 1):
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}", "train.py"]
        done = subprocess.run(start, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr

    infos = mc.list_checkpoints(tmp_path / "runs/fsdp")
    assert [(info.step, info.world_size) for info in infos] == [(2, 1), (1, 2)]


@pytest.mark.s3
def test_the_recipe_for_buckets_runs_against_a_server(moto, tmp_path, monkeypatch):
    for key, value in moto.environment().items():
        monkeypatch.setenv(key, value)

    done = python(program("recipes.md", "to_s3.py"), tmp_path / "run")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
