"""A rank or a node of a job dies: torchrun starts what is left again, and the same program goes on by itself."""

import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.distributed.scenes import network, train
from tests.ground.ports import free_port

import model_checkpoint as mc

pytestmark = [pytest.mark.slow, pytest.mark.distributed, pytest.mark.fault]

PROGRAM = Path(__file__).parent / "elastic_program.py"
PATIENCE = "last_call_timeout=6,keep_alive_interval=2,keep_alive_max_attempt=5"


ENV = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": os.pathsep.join(sys.path)}
ENV["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # else gloo finds addresses of the start before in it, and hangs


@contextmanager
def torchrun(root, *arguments, **env):
    command = [sys.executable, "-m", "torch.distributed.run", "--max-restarts=3", *arguments, str(PROGRAM), str(root)]
    with subprocess.Popen(command, env=ENV | env) as agent:
        try:
            yield agent
        finally:
            agent.terminate()  # if it has not ended by itself: then it ends its ranks


def check_training(root, worlds):
    """Steps 1 to 6 were saved, each by as many ranks as there were, and every loss is that of an unbroken run."""
    saved = [(info.step, info.world_size) for info in mc.list_checkpoints(root)]
    assert saved == list(zip(range(6, 0, -1), worlds, strict=True))
    assert all(health.ok for health in mc.verify(root))
    model = network()
    with warnings.catch_warnings(action="ignore"):  # a loss of the scenes still has its graph
        truth = train(model, torch.optim.AdamW(model.parameters(), lr=0.01), range(1, 7))
    starts = [path.read_text().splitlines() for path in sorted(root.glob("losses-*"))]
    assert [[line.split()[0] for line in start] for start in (starts[0], starts[-1])] == [[*"1234"], [*"456"]]
    for step, loss in (line.split() for start in starts for line in start):
        assert np.isclose(float(loss), truth[int(step) - 1], rtol=1e-5)


def one_or_two_nodes():
    """What each node of such a job is told."""
    place = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
    return ["--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-id=job", "--local-addr=127.0.0.1", place]


def test_a_job_that_torchrun_starts_again_goes_on_where_all_ranks_had_saved(tmp_path):
    with torchrun(tmp_path, "--standalone", "--nproc-per-node=2") as job:
        assert job.wait(200) == 0

    check_training(tmp_path, [2] * 6)


def test_a_job_that_has_lost_a_node_goes_on_with_the_ranks_that_are_left(tmp_path):
    job = one_or_two_nodes()

    with (
        torchrun(tmp_path, *job, f"--rdzv-conf=is_host=false,{PATIENCE}", "--nproc-per-node=1", NODE="lost") as lost,
        torchrun(tmp_path, *job, f"--rdzv-conf=is_host=true,{PATIENCE}", "--nproc-per-node=2", NODE="kept") as kept,
    ):
        assert (kept.wait(300), lost.wait(10)) == (0, -signal.SIGKILL)

    check_training(tmp_path, [2] * 3 + [3] * 3)


def test_a_job_to_which_a_node_comes_goes_on_with_all_ranks(tmp_path):
    job = one_or_two_nodes()

    with torchrun(tmp_path, *job, f"--rdzv-conf=is_host=true,{PATIENCE}", "--nproc-per-node=2", NODE="grows") as first:
        end = time.monotonic() + 200
        while not (tmp_path / "alone").exists():
            assert first.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        come = [*job, f"--rdzv-conf=is_host=false,{PATIENCE}", "--nproc-per-node=1"]
        with torchrun(tmp_path, *come, NODE="grows") as second:
            assert (first.wait(200), second.wait(60)) == (0, 0)

    saved = [(info.step, info.world_size) for info in mc.list_checkpoints(tmp_path)]
    assert saved == list(zip(range(6, 0, -1), [3] * 3 + [2] * 3, strict=True))
    assert all(health.ok for health in mc.verify(tmp_path))
