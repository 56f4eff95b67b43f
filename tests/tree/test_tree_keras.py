"""Keras 3 models and optimizers: exact on every backend, into live ones, and from one backend to another."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("keras_states.py")


def run(backend, root, saved_by):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), backend, str(root), saved_by],
        capture_output=True, text=True, check=False, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["fine"], done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_keras_run_resumes_exactly_and_its_weights_reach_another_backend(tmp_path, backend):
    """Counters and seeds have another dtype in each backend; weights have the same in all."""
    run(backend, tmp_path, backend)
    run({"tensorflow": "jax", "jax": "torch", "torch": "tensorflow"}[backend], tmp_path, backend)
