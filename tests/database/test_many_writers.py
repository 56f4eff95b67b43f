"""Many processes write at once: no error, nothing lost, nothing twice; a server killed under them loses nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.database import crowd

from model_checkpoint.database import EnhancedDatabaseConnection, Experiment

ROOT = Path(__file__).parents[2]
CROWD = 8


def started(url, number):
    command = [sys.executable, "-m", "tests.database.crowd", url, str(number)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_eight_savers_and_eight_loggers_lose_nothing(database_url):
    """They even make the tables all at once."""
    works = [(work, database_url, number) for number in range(CROWD) for work in (crowd.save, crowd.log)]

    assert crowd.gathered(works) == []
    with EnhancedDatabaseConnection(database_url) as db:
        rows = db.get_checkpoints_by_experiment("shared")
        assert sorted(one.id for one in rows) == sorted(f"{n}-{s}" for n in range(CROWD) for s in range(crowd.SAVES))
        assert sum(one.is_best_loss for one in rows) == 1
        points = db.get_metrics("shared")
        each = CROWD * crowd.BATCHES * crowd.STEPS
        assert len(points) == len({point[:2] + point[3:] for point in points}) == each * crowd.KEYS
        assert {one.count for one in db.summaries("shared")} == {each}
        assert len(db.summaries("shared")) == crowd.KEYS


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("server", ["postgres", "mariadb"])
def test_a_server_killed_while_many_save_loses_no_acknowledged_row(request, server):
    """Whoever saves gets a typed error meanwhile, tries again, and goes on when the server is back."""
    machine = request.getfixturevalue(server)
    url = machine.new_database()
    with EnhancedDatabaseConnection(url) as db:
        db.save_experiment(Experiment(id="shared", name="x"))
        writers = [started(url, number) for number in range(4)]
        try:
            for _ in range(2):
                assert all(int(one.stdout.readline()) >= 0 for one in writers)
                machine.kill()
                machine.start()
            assert [one.poll() for one in writers] == [None] * 4
            for one in writers:  # they go on
                one.stdout.readline()
        finally:
            for one in writers:
                one.kill()
        told = [one.communicate() for one in writers]

        assert [errors for _, errors in told] == [""] * 4
        found = {one.id for one in db.get_checkpoints_by_experiment("shared")}
        for number, (text, _) in enumerate(told):
            acknowledged = [line for line in text.splitlines() if line.isdigit()]
            assert {f"{number}-{saved}" for saved in acknowledged} <= found
        assert len({(p.step, p.timestamp) for p in db.get_metrics("shared")}) == db.summaries("shared")[0].count


@pytest.mark.slow
@pytest.mark.fault
def test_no_acknowledged_checkpoint_row_is_lost_when_power_goes(disk):
    url = f"sqlite:///{disk.mount_point}/catalog.db"
    for turn in range(3):
        with EnhancedDatabaseConnection(url) as db:
            db.save_experiment(Experiment(id="shared", name="x"))
        writer = started(url, turn)
        for _ in range(1 + 4 * turn):
            last = int(writer.stdout.readline())
        disk.cut()
        writer.kill()
        writer.communicate()
        disk.unmount()
        disk.mount()

        with EnhancedDatabaseConnection(url) as db:
            found = {one.id for one in db.get_checkpoints_by_experiment("shared")}
            assert {f"{turn}-{count}" for count in range(last + 1)} <= found
            counts = [one.count for one in db.summaries("shared")]
            assert counts == [len(db.get_metrics("shared"))] * len(counts)


@pytest.mark.slow
@pytest.mark.fault
def test_a_writer_killed_at_any_moment_leaves_whole_rows_and_a_free_file(sqlite_url):
    with EnhancedDatabaseConnection(sqlite_url) as db:
        db.save_experiment(Experiment(id="shared", name="x"))
        for turn in range(3):
            writer = started(sqlite_url, turn)
            for _ in range(5 + turn * 3):
                last = int(writer.stdout.readline())
            time.sleep(0.01 * turn)
            writer.send_signal(signal.SIGKILL)
            writer.communicate()

            assert db.get_checkpoint(f"{turn}-{last}") is not None
            db.save_experiment(Experiment(id=f"free{turn}", name="x"))
            points = [point for point in db.get_metrics("shared") if point.timestamp == turn]
            assert len(points) >= last + 1
        assert db.summaries("shared")[0].count == len(db.get_metrics("shared"))
