"""A rank of a job dies: torchrun starts all of them again, and the same program goes on by itself."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.distributed.scenes import network, train

import model_checkpoint as mc

pytestmark = [pytest.mark.slow, pytest.mark.distributed, pytest.mark.fault]

PROGRAM = Path(__file__).parent / "elastic_program.py"


def test_a_job_that_torchrun_starts_again_goes_on_where_all_ranks_had_saved(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=3"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": os.pathsep.join(sys.path)}
    env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # else gloo finds addresses of the start before in it, and hangs

    subprocess.run([*command, str(PROGRAM), str(tmp_path)], env=env, timeout=200, check=True)

    assert [(info.step, info.world_size) for info in mc.list_checkpoints(tmp_path)] == [(i, 2) for i in range(6, 0, -1)]
    assert all(health.ok for health in mc.verify(tmp_path))
    model = network()
    with warnings.catch_warnings(action="ignore"):  # a loss of the scenes still has its graph
        truth = train(model, torch.optim.AdamW(model.parameters(), lr=0.01), range(1, 7))
    starts = [path.read_text().splitlines() for path in sorted(tmp_path.glob("losses-*"))]
    assert [[line.split()[0] for line in start] for start in (starts[0], starts[-1])] == [[*"1234"], [*"456"]]
    for step, loss in (line.split() for start in starts for line in start):
        assert np.isclose(float(loss), truth[int(step) - 1], rtol=1e-5)
