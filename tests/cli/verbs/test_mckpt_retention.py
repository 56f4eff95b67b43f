"""mckpt prune, forecast, pin, unpin, tag and note: what they print, and that what is done is what was shown."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tests.checkpoint.retention.retention_ground import fill
from tests.ground.stored.stored_files import steps
from typer.testing import CliRunner

import model_checkpoint as mc
from model_checkpoint.cli.app import app
from model_checkpoint.cli.exit_codes import code_of

KEEP = ["--keep", "last:2", "--keep", "best:val_loss"]


@pytest.fixture
def root(tmp_path):
    fill(tmp_path / "runs", range(1, 6), metric=lambda step: abs(step - 2))
    return tmp_path / "runs"


def mckpt(*words):
    """What the command prints and leaves with; of an error of ours `answer` makes one line and a code."""
    result = CliRunner().invoke(app, [*map(str, words)])
    if isinstance(result.exception, mc.CheckpointException):
        return SimpleNamespace(returncode=code_of(result.exception), stdout=result.stdout, stderr=str(result.exception))
    return SimpleNamespace(returncode=result.exit_code, stdout=result.stdout, stderr=result.stderr)


def test_a_dry_run_shows_every_checkpoint_with_its_reasons_and_the_id_carries_it_out(root):
    told = mckpt("prune", root, *KEEP, "--dry-run")

    assert told.returncode == 0, told.stderr
    assert "best 1 by val_loss: 0 is number 1" in told.stdout
    assert "last 2: number 5; best 1 by val_loss: 1 is number 3" in told.stdout
    assert "keeps 3 (" in told.stdout
    assert steps(root) == [1, 2, 3, 4, 5]
    plan = told.stdout.split("--plan ")[1].split()[0]

    mc.pin(root, step=1)
    late = mckpt("prune", root, *KEEP, "--plan", plan)
    assert (late.returncode, steps(root)) == (4, [1, 2, 3, 4, 5])
    assert "Nothing was removed" in late.stderr
    mc.unpin(root, step=1)
    done = mckpt("prune", root, *KEEP, "--plan", plan)
    assert (done.returncode, steps(root)) == (0, [2, 4, 5])
    assert "dropped 2 (" in done.stdout
    assert "brings one back" in done.stdout


def test_without_a_grace_nothing_is_said_to_come_back(root):
    words = ("prune", root, *KEEP, "--grace", "0s")

    assert "freed at once)" in mckpt(*words, "--dry-run").stdout
    done = mckpt(*words)
    assert "dropped 2 (" in done.stdout
    assert "freed at once)" in done.stdout
    assert "restore" not in done.stdout
    assert mckpt("trash", root).stdout == "The trash is empty.\n"
    assert mckpt(*words).stdout.endswith("dropped 0\n")  # and what nothing frees has no figure


def test_json_has_all_of_it(root):
    value = json.loads(mckpt("prune", root, *KEEP, "--dry-run", "--json").stdout)

    assert [one["step"] for one in value["decisions"] if not one["keep"]] == [3, 1]
    assert value["freed_bytes"] == sum(one["freed_bytes"] for one in value["decisions"]) > 0
    assert json.loads(mckpt("forecast", root, "--keep", "last:2", "--json").stdout)["steady_checkpoints"] == 2
    assert json.loads(mckpt("pin", f"{root}@1", "--json").stdout)["pinned"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say what to keep, e.g. --keep last:3"),
        (["--keep", "latest:3"], "there is no keeper 'latest'"),
        (["--keep", "lasst:3"], "Did you mean 'last'?"),
        (["--keep", "last:many"], "write last:3"),
        (["--keep", "best:val_los"], "Did you mean 'val_loss'?"),
        (["--keep", "best:val_loss *"], "expected a metric"),
        (["--keep", "ladder:10"], "write ladder:2x10"),
        (["--keep", "pareto:a"], "write pareto:val_f1,min:latency"),
        (["--keep", "pinned:x"], "write pinned"),
        (["--keep", "budget:5GB:soft"], "write budget:50GB"),
        (["--resume", "--keep", "last:1"], "leave --keep out"),
        (["--resume"], "there is none to finish"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_goes(root, words, said):
    done = mckpt("prune", root, *words)

    assert done.returncode == (3 if "best:val_los" in words else 2)
    assert said in done.stderr
    assert steps(root) == [1, 2, 3, 4, 5]


def test_an_error_is_told_without_a_traceback_and_leaves_with_3(root):
    command = [sys.executable, "-m", "model_checkpoint", "prune", str(root), "--keep", "best:val_los"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 3
    assert "Did you mean 'val_loss'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_marks_are_set_shown_and_taken_off(root):
    for words in (
        ["pin", f"{root}@1"],
        ["tag", f"{root}@1", "paper", "[red]x"],
        ["note", f"{root}@1", "before the\x1b[31m new data"],
    ):
        assert mckpt(*words).returncode == 0

    assert "pinned, [red]x, paper, (note)" in mckpt("ls", root).stdout
    shown = mckpt("show", f"{root}@1").stdout
    assert "before the?[31m new data" in shown
    assert "no longer pinned" in mckpt("unpin", f"{root}@1").stdout
    assert "tagged [red]x" in mckpt("tag", "--remove", f"{root}@1", "paper").stdout
    assert "has no note" in mckpt("note", f"{root}@1", "").stdout
    assert mckpt("unpin", root).returncode == 2


def test_a_forecast_is_told_in_a_few_lines(root):
    told = mckpt("forecast", root, "--keep", "last:2", "--keep", "every:2", "--grace", "0s").stdout

    assert "5 checkpoints" in told
    assert "last 2, every 2 steps: grows for ever" in told


def test_damaged_ones_are_dropped_only_when_so_asked(root):
    (root / "checkpoints/step-00000005/manifest.json").write_bytes(b"noise")

    assert "damaged, may be repaired" in mckpt("prune", root, "--keep", "last:9").stdout
    assert mckpt("prune", root, "--keep", "last:9", "--drop-damaged").returncode == 0
    assert steps(root) == [1, 2, 3, 4]
