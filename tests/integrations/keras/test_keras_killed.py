"""Killed anywhere and started again, a fit of Keras ends bit-identical to one that was never interrupted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BATCHES = 3 * 13
HALF = ("dataset", "loader")  # trained in mixed_float16
KINDS = {"torch": ["dataset", "persistent workers", "processes", "arrays"], "jax": ["loader", "arrays"]}
TOLD = ["SIGTERM", "SIGTERM", "SIGINT"]
CODES = {"SIGTERM": 143, "SIGINT": 130}


@pytest.mark.parametrize("backend", KINDS)
def test_a_fit_that_was_killed_or_told_to_end_ends_as_if_it_had_not_been(tmp_path, backend):
    """In a process of its own: a program has one backend."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.integrations.keras.keras_training",
        tmp_path,
        *KINDS[backend],
    ]
    environment = {**os.environ, "KERAS_BACKEND": backend}

    done = subprocess.run(
        command, cwd=Path(__file__).parents[3], env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr[-3000:]
    trials = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert [kind for kind, *_ in trials] == [*KINDS[backend], *(TOLD if backend == "torch" else ())]
    for kind, whole, killed, starts in trials:
        assert killed == whole, kind
        assert max(starts) > 0, kind
        assert kind not in CODES or (starts[:2] == [CODES[kind], 0] and 0 < starts[2] < BATCHES), kind
        batches, steps, epochs, exact, _ = whole.split()
        assert (batches, epochs, exact) == (str(BATCHES), "3", "True"), kind
        assert (int(steps) < BATCHES // 2) is (kind in HALF), kind  # in half precision some overflow and are skipped
