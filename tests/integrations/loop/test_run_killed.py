"""Killed anywhere and started again, a run ends bit-identical to one that was never interrupted."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.integrations.killing import (
    ended,
    start,
    starts_of,
    told_to_end,
    unbroken,
    whole_and_killed,
    whole_and_lengthened,
)
from tests.integrations.loop.loop_training import DATA, EPOCHS, batches_in, train

import model_checkpoint as mc

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Import and compile what is done once per process, so that the children come to their first save quickly."""
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.zeros(1)
    torch.optim.AdamW([weight]).step()
    assert all(map(callable, (mc.Run, mc.save_async, mc.load, mc.finish_saves)))
    mc.save_async("memory://warm", {"weight": weight}, step=1).result()


SIGNALS = [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
AT_ENDS = ("workers", "stream", "persistent workers")  # a loop of epochs differs only at their ends


@pytest.mark.parametrize(
    ("kind", "by_epochs"), [*((kind, False) for kind in DATA), *((kind, True) for kind in AT_ENDS)]
)
def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path, kind, by_epochs):
    make = DATA[kind]
    whole, killed, starts = whole_and_killed(
        train, tmp_path, kills=3, seed=kind, make=make, pause=0.004, by_epochs=by_epochs
    )

    assert killed == whole
    assert max(starts) > 0
    assert int(whole.split()[0]) == EPOCHS * batches_in(make())


@pytest.mark.parametrize("kind", ["workers", "persistent workers", "stream, persistent workers", "several loaders"])
def test_a_finished_run_given_more_epochs_ends_as_one_that_had_them_from_the_beginning(tmp_path, kind):
    lengths = [{"epochs": epochs} for epochs in (1, EPOCHS)]
    whole, longer, starts = whole_and_lengthened(train, tmp_path, lengths, make=DATA[kind], accumulate=1)

    assert longer == whole
    assert whole.split()[1] == "True"
    assert starts == [0, batches_in(DATA[kind]())]


ENDS = [
    *((kind, whom, *how) for kind in ("shuffled", "workers") for whom in (os.kill, os.killpg) for how in SIGNALS),
    ("StatefulDataLoader", os.killpg, *SIGNALS[0]),
]


@pytest.mark.parametrize(("kind", "send", "number", "code"), ENDS)
def test_a_run_that_is_told_to_end_saves_at_the_next_boundary_and_goes_on_from_there(
    tmp_path, kind, send, number, code
):
    make = DATA[kind]
    whole, _ = unbroken(train, tmp_path, make=make)
    root, out = tmp_path / "told", tmp_path / "told.out"

    options = {"make": make, "pause": 0.01, "every": 1000}
    assert told_to_end(train, root, out, number=number, batches=9, send=send, **options) == code
    saved = [one.step for one in mc.list_checkpoints(root)]
    assert len(saved) == 1
    assert ended(start(train, root, out, make=make)) == 0

    assert out.read_text() == whole
    assert starts_of(out) == [0, *saved]
    assert saved[0] % 2 == 0  # where the optimizer had stepped
    assert mc.list_checkpoints(root)[-1].metadata["run"]["step"] == saved[0]


def test_a_killed_loop_over_arrays_ends_as_if_it_had_not_been(tmp_path):
    """In a process of its own, in which JAX has not begun to compute."""
    kinds = ["numpy", "jax"]
    command = [sys.executable, "-W", "ignore", "-m", "tests.integrations.loop.array_training", tmp_path, *kinds]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    trials = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert [kind for kind, *_ in trials] == kinds
    for kind, whole, killed, starts in trials:
        assert killed == whole, kind
        assert whole.startswith("39 True "), kind
        assert max(starts) > 0, kind
