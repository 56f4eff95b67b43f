"""However a program ends or forks, what it logged is in the catalog once, and the run says how it ended."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from model_checkpoint.database import EnhancedDatabaseConnection

START = """
import os, sys, threading, time
from model_checkpoint import ExperimentTracker
tracker = ExperimentTracker("run", database_url=sys.argv[1])
"""


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def catalog(url):
    connection = EnhancedDatabaseConnection(url)
    yield connection
    connection.close()


def run(script, url, code=0):
    """Run a program to its end."""
    program = [sys.executable, "-c", START + textwrap.dedent(script), url]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, done.stderr
    return done


def only_run(catalog):
    (found,) = catalog.list_experiments().items
    return found


def steps(catalog):
    return [point.step for point in catalog.get_metrics(only_run(catalog).id)]


def test_a_program_that_just_ends_has_stored_everything_and_says_it_was_stopped(url, catalog):
    run("for step in range(3_000): tracker.log_metrics({'x': 1.0}, step=step)", url)

    assert steps(catalog) == list(range(3_000))
    assert only_run(catalog).status == "stopped"
    assert only_run(catalog).notes == "the program ended without closing the run"
    assert only_run(catalog).end_time is not None


def test_an_exception_that_ends_the_program_marks_the_run_failed(url, catalog):
    done = run("tracker.log_metrics({'x': 1.0}); raise KeyError('no such layer')", url, code=1)

    assert "no such layer" in done.stderr
    assert only_run(catalog).status == "failed"
    assert only_run(catalog).notes == "failed: KeyError: 'no such layer'"
    assert steps(catalog) == [0]


def test_a_thread_that_outlives_the_program_logs_to_the_end(url, catalog):
    script = """
    def late():
        time.sleep(0.3)
        for step in range(10): tracker.log_metrics({'x': 1.0}, step=step)
    threading.Thread(target=late).start()
    """
    run(script, url)

    assert steps(catalog) == list(range(10))


def test_a_forked_child_repeats_nothing_of_its_parent_and_leaves_the_run_to_it(url, catalog):
    script = """
    for step in range(500): tracker.log_metrics({'x': 1.0}, step=step)
    child = os.fork()
    first = 10_000 if child == 0 else 20_000
    for step in range(first, first + 500): tracker.log_metrics({'x': 1.0}, step=step)
    assert tracker.flush(60).stored == (500 if child == 0 else 1000)
    if child == 0:
        tracker.close()
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tracker.experiment.status == "running"
    tracker.close()
    """
    run(script, url)

    expected = [*range(500), *range(10_000, 10_500), *range(20_000, 20_500)]
    assert steps(catalog) == expected
    assert only_run(catalog).status == "completed"


def test_many_forks_while_metrics_flow_neither_hang_nor_double(url, catalog):
    script = """
    def log():
        for step in range(4_000): tracker.log_metrics({'x': 1.0}, step=step)
    thread = threading.Thread(target=log); thread.start()
    children = []
    for number in range(12):
        child = os.fork()
        if child == 0:
            tracker.log_metrics({'x': 1.0}, step=100_000 + number)
            tracker.flush(60)
            os._exit(0)
        children.append(child)
        time.sleep(0.005)
    thread.join()
    assert all(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 for child in children)
    tracker.close()
    """
    run(script, url)

    assert steps(catalog) == [*range(4_000), *range(100_000, 100_012)]


def test_children_of_multiprocessing_store_what_they_logged_without_a_flush(url, catalog):
    script = """
    import multiprocessing
    def work(number): tracker.log_metrics({'x': 1.0}, step=number)
    children = [multiprocessing.get_context("fork").Process(target=work, args=(n,)) for n in range(4)]
    for child in children: child.start()
    for child in children: child.join()
    tracker.close()
    """
    run(script, url)

    assert steps(catalog) == [0, 1, 2, 3]


def test_a_killed_program_has_stored_what_a_flush_acknowledged_and_is_seen_as_dead(url, catalog):
    from model_checkpoint.tracking import RunState, judge_run

    script = """
    for step in range(100): tracker.log_metrics({'x': 1.0}, step=step)
    assert tracker.flush(60)
    os.kill(os.getpid(), 9)
    """
    run(script, url, code=-signal.SIGKILL)

    assert steps(catalog) == list(range(100))
    found = only_run(catalog)
    assert judge_run(found, catalog.now()).state is RunState.ALIVE  # nothing tells it from a run that was just seen
    vitals = judge_run(found, catalog.now() + 61)
    assert vitals.state is RunState.DEAD
    assert "still marked as running" in vitals.evidence


def test_a_relative_file_stays_where_it_was_when_the_program_changes_its_folder(tmp_path):
    script = """
    os.chdir("/")
    tracker.log_metrics({'x': 1.0})
    tracker.close()
    """
    program = [sys.executable, "-c", START + textwrap.dedent(script), "sqlite:///here.db"]
    environment = {**os.environ, "PYTHONPATH": os.path.abspath("src")}
    subprocess.run(program, cwd=tmp_path, check=True, timeout=120, env=environment)

    connection = EnhancedDatabaseConnection(f"sqlite:///{tmp_path}/here.db")
    assert steps(connection) == [0]
    connection.close()
