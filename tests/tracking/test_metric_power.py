"""What a flush acknowledged survives the loss of power, in the database and in the spool."""

import subprocess
import sys
import textwrap

import pytest

from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.tracking import ExperimentTracker, TrackerOptions

SCRIPT = """
import sys
from model_checkpoint.tracking import ExperimentTracker, TrackerOptions

url, folder, joined = sys.argv[1:]
options = TrackerOptions(spool_folder=folder)
tracker = ExperimentTracker("run", database_url=url, options=options)
logging = ExperimentTracker.join(tracker.experiment_id, url, options=options) if joined == "joined" else tracker
for step in range(100):
    for part in range(30):
        logging.log_metrics({f"m{i}": float(step) for i in range(20)}, step=30 * step + part)
    tally = logging.flush()
    print(tracker.experiment_id, 30 * step + part, flush=True)
    sys.stdin.readline()
"""


def train_until_the_power_fails(disk, url, folder, *, joined="alone"):
    """Train on the disk, pull the plug after some flushes, and return the run and its last acknowledged step."""
    program = [sys.executable, "-c", textwrap.dedent(SCRIPT), url, str(folder), joined]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as training:
        for _ in range(4):
            run, step = training.stdout.readline().split()
            training.stdin.write("\n")
            training.stdin.flush()
        run, step = training.stdout.readline().split()
        disk.cut()
        training.kill()
    disk.unmount()
    disk.mount()
    return run, int(step)


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("joined", ["alone", "joined"])
def test_what_a_flush_acknowledged_is_in_the_file_when_power_is_back(disk, tmp_path, joined):
    url = f"sqlite:///{disk.mount_point}/runs.db"

    run, step = train_until_the_power_fails(disk, url, disk.mount_point / "spool", joined=joined)

    with EnhancedDatabaseConnection(url) as catalog:
        found = {point.step for point in catalog.get_metrics(run, "m7")}
    assert set(range(step + 1)) <= found


@pytest.mark.slow
@pytest.mark.fault
def test_what_a_flush_acknowledged_during_an_outage_is_in_the_spool_when_power_is_back(disk, tmp_path):
    blocked = tmp_path / "data"
    blocked.write_text("not a folder")
    url = f"sqlite:///{blocked}/runs.db"

    run, step = train_until_the_power_fails(disk, url, disk.mount_point / "spool")
    blocked.unlink()
    blocked.mkdir()
    options = TrackerOptions(spool_folder=disk.mount_point / "spool")
    later = ExperimentTracker("later", database_url=url, options=options)
    while not later.flush():
        pass

    assert {point.step for point in later.connection.get_metrics(run, "m7")} >= set(range(step + 1))
    later.close()
    later.connection.close()
