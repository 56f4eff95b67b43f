"""One connection is shared by threads, left alone by forked children, carried to other processes; calls go together."""

import multiprocessing
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment, Metric


def test_many_threads_share_one_pool(db):
    def work(number):
        db.save_checkpoint(Checkpoint(id=f"c{number}", experiment_id="r1", step=number))
        return db.get_checkpoint(f"c{number}").step

    with ThreadPoolExecutor(30) as pool:
        assert sorted(pool.map(work, range(90))) == list(range(90))
    engine = db._pool.engine()
    assert engine.pool.checkedout() == (engine.dialect.name == "sqlite")  # to a file one stays at hand


def test_a_database_in_memory_is_one_for_all_threads():
    with EnhancedDatabaseConnection("sqlite://") as db:
        db.save_experiment(Experiment(id="r1", name="x"))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: db.write_metrics([Metric("r1", "loss", float(n), n, 1.0)]), range(40)))

        assert db.summaries("r1")[0].count == 40


def forked(work):
    """Run in a forked child; what it returned, or the error."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def run():
        try:
            queue.put(work())
        except Exception as error:  # noqa: BLE001 - the parent judges it
            queue.put(f"{type(error).__name__}: {error}")

    child = context.Process(target=run)
    child.start()
    answer = queue.get()
    child.join(60)
    assert child.exitcode == 0
    return answer


def test_a_forked_child_has_connections_of_its_own(db):
    """Forked in the middle of a transaction of another thread, as a loader of data does."""
    inside, over = threading.Event(), threading.Event()

    def hold():
        def work():
            inside.set()
            over.wait(60)
            return db.get_experiment("r1").name

        return db.together(work)

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(hold)
        inside.wait(60)
        name = forked(lambda: db.get_experiment("r1").name)
        over.set()
        assert (name, held.result()) == ("baseline", "baseline")

    assert forked(lambda: db.write_metrics([Metric("r1", "loss", 0.5, 1, 1.0)])) == 1
    db.save_experiment(Experiment(id="r2", name="after"))
    assert [point.metric_value for point in db.get_metrics("r1")] == [0.5]


def test_memory_is_not_shared_with_a_child():
    with EnhancedDatabaseConnection("sqlite://") as db:
        assert "a database in memory belongs to process" in forked(lambda: db.list_experiments())
        assert db.list_experiments().items == []


def test_a_connection_travels_to_another_process(lite):
    code = "import sys, pickle; db = pickle.load(sys.stdin.buffer); print(db.get_experiment('r1').name)"

    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(lite), capture_output=True, check=False)

    assert (done.stdout, done.stderr) == (b"baseline\n", b"")


def test_flags_handed_out_at_the_same_time_end_on_one(db):
    """Who clears the flag of others waits for whoever is just giving one."""
    db.save_checkpoints([Checkpoint(id=f"c{n}", experiment_id="r1", step=n) for n in range(2)])
    given = threading.Event()

    def first():
        db.flag_best("r1", "loss", ["c0"])
        given.set()
        time.sleep(0.3)  # the transaction is still open

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(db.together, first)
        given.wait(60)
        db.flag_best("r1", "loss", ["c1"])
        held.result()

    assert [one.id for one in db.get_checkpoints_by_experiment("r1", best_only=True)] == ["c1"]


def test_what_goes_together_may_be_part_of_more_that_does(db):
    def inner():
        db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))

    def outer():
        db.together(inner)
        db.save_checkpoint(Checkpoint(id="c2", experiment_id="r1"))
        raise KeyError("the caller's own")

    with pytest.raises(KeyError, match="the caller's own"):
        db.together(outer)

    assert [db.get_checkpoint(id) for id in ("c1", "c2")] == [None, None]


def test_calls_together_are_all_or_none(db):
    def both():
        db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1", metrics={"new": 1.0}))
        db.record_audit("save", "c1")
        raise KeyError("the caller's own")

    with pytest.raises(KeyError, match="the caller's own"):
        db.together(both)

    assert (db.get_checkpoint("c1"), db.audit().items) == (None, [])
    db.together(
        lambda: (
            db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1", metrics={"new": 1.0})),
            db.record_audit("save"),
        )
    )
    assert db.best("r1", "new")[0].id == "c1"
    assert len(db.audit().items) == 1
