"""The same calls over MPI and over the coordination service of JAX, between real processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.ground.ports import free_port

import model_checkpoint as mc

pytestmark = [pytest.mark.slow, pytest.mark.distributed]

HERE = Path(__file__).parent
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4", sys.executable]


@pytest.mark.parametrize(("level", "fault"), [("multiple", "stop"), ("serialized", "kill"), ("funneled", "stop")])
def test_four_ranks_of_mpi_save_and_load_together_and_name_one_that_is_gone(tmp_path, level, fault):
    survive = ["--enable-recovery"] if fault == "kill" else []  # else mpirun ends all ranks with the first
    command = [*MPIRUN[:1], *survive, *MPIRUN[1:], str(HERE / "mpi_program.py"), str(tmp_path), fault, level]
    program = subprocess.Popen(command, env=ENV)
    try:
        end = time.monotonic() + 200
        while not all((tmp_path / f"told-{rank}").exists() for rank in range(3)):
            assert time.monotonic() < end
            assert program.poll() is None
            time.sleep(0.05)
    finally:
        for file in tmp_path.glob("pid-*"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)
        program.kill()
        program.wait()

    told = [(tmp_path / f"told-{rank}").read_text() for rank in range(3)]
    assert all(text.startswith("RankLost rank 3 of 4 gave no sign for 2 s") for text in told)
    assert len(list(tmp_path.glob("loaded-*"))) == 4
    assert [info.step for info in mc.list_checkpoints(tmp_path)] == [*range(8, 0, -1)]
    assert all(health.ok for health in mc.verify(tmp_path))


@pytest.mark.parametrize("victim", [0, 1])
def test_two_processes_of_jax_save_and_load_together_and_one_that_dies_leaves_nothing_half_done(tmp_path, victim):
    port = str(free_port())
    command = [sys.executable, str(HERE / "jax_program.py"), str(tmp_path)]

    programs = [subprocess.Popen([*command, str(rank), port, str(victim)], env=ENV) for rank in range(2)]

    codes = [program.wait(200) for program in programs]
    assert codes[victim] == -signal.SIGKILL
    assert len(list(tmp_path.glob("loaded-*"))) == 2
    assert [(info.step, info.world_size) for info in mc.list_checkpoints(tmp_path)] == [(3, 2), (2, 2), (1, 2)]
    assert all(health.ok for health in mc.verify(tmp_path))
    if victim == 1:  # when process 0 is lost, JAX ends the others before they can tell
        assert (tmp_path / "told-0").read_text().startswith("RankLost rank 1 of 2 gave no sign for 4 s")
