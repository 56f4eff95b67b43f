"""The README's example runs as printed, twice: the second run resumes from the first, whatever became of it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import model_checkpoint as mc
from tests.docs.served_pages import MCKPT, serving

README = Path(__file__).parent.parent / "README.md"


def run_example(folder):
    code = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1]
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)


def test_the_example_runs_and_resumes(tmp_path):
    first = run_example(tmp_path)
    again = run_example(tmp_path)

    assert (first.returncode, first.stderr) == (0, "runs/a: a new run\n")
    assert again.returncode == 0
    assert re.fullmatch(r"runs/a: resumed at step 100 \(epoch 5, batch 0\) from .*step-00000100\n", again.stderr)
    assert len(list((tmp_path / "runs/a/checkpoints").iterdir())) == 5


def test_the_commands_below_the_example_run_as_they_stand_there(tmp_path):
    text = README.read_text()
    block = re.search(r"```\n(mckpt ls.*?)```", text, re.DOTALL)[1]
    commands = [one.strip() for line in block.splitlines() for one in re.split(r" {3,}", line)]
    serve = re.search(r"```\n(mckpt serve [^#\n]*)", text)[1]
    run_example(tmp_path)

    codes = {
        one.split()[1]: subprocess.run(
            [*MCKPT, *one.split()[1:]], cwd=tmp_path, capture_output=True, check=False
        ).returncode
        for one in commands
    }
    with serving(serve, tmp_path) as (rows, _):
        shown = [(row["name"], row["n"]) for row in rows]

    assert codes == {"ls": 0, "show": 0, "verify": 0, "diff": 1, "rm": 0, "prune": 0, "doctor": 0}
    assert shown == [("a", 4)]  # one of the five was removed


def test_the_example_goes_on_from_an_older_checkpoint_and_replaces_the_damaged_ones(tmp_path):
    run_example(tmp_path)
    for step in (80, 100):
        (file,) = (tmp_path / f"runs/a/checkpoints/step-{step:08d}").glob("*.safetensors")
        file.write_bytes(file.read_bytes()[:-1] + b"?")

    again = run_example(tmp_path)

    assert again.returncode == 0, again.stderr
    assert "CheckpointWarning" in again.stderr
    assert "step-00000060: loaded, but it is not the checkpoint asked for" in again.stderr
    assert [(health.info.step, health.ok) for health in mc.verify(tmp_path / "runs/a")] == [
        (step, True) for step in (100, 80, 60, 40, 20)
    ]


def test_whoever_comes_from_elsewhere_finds_what_to_write_instead():
    text = README.read_text()

    assert "pip install model-checkpoint" in text
    rows = dict(re.findall(r"^\| ([^|]+) \| (.+) \|$", text.split("## Coming from")[1].split("## ")[0], re.MULTILINE))
    assert rows.keys() > {
        "`torch.save`",
        "DDP",
        "DCP",
        "Hugging Face Trainer",
        "Accelerate",
        "Lightning",
        "Keras 3",
        "Orbax",
    }
    assert "rank 0 alone" in rows["DDP"]
    assert "CONSOLIDATED" in rows["`from_pretrained`"]


@pytest.mark.slow
def test_the_demo_holds_every_claim():
    done = subprocess.run(
        [sys.executable, "-m", "demo"], cwd=README.parent, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "CheckpointWarning" in done.stdout
    assert "NO" not in done.stdout
    assert "Look at it in a browser: make demo-serve" in done.stdout.splitlines()[-1]
    assert served_runs() >= 2


def served_runs():
    """How many runs the dashboard shows that `make demo-serve` opens, by the command that it runs."""
    told = subprocess.run(["make", "-n", "demo-serve"], cwd=README.parent, capture_output=True, text=True, check=True)
    (line,) = [line for line in told.stdout.splitlines() if "mckpt serve" in line]
    with serving(line, README.parent) as (rows, _):
        return len(rows)
