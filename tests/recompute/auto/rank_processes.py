"""Two real processes that run one script, joined by gloo."""

import os
import subprocess
import sys


def run_two(script, folder, *, timeout):
    """Run ``script`` as ranks 0 and 1 with a rendezvous file below ``folder``; both must end well and say "done"."""
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(rank), str(folder / "store")],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=timeout) for process in ranks]

    assert all(process.returncode == 0 for process in ranks), outputs
    assert all("done" in out for out, _ in outputs)
