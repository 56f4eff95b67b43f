"""Workers: none of them outlives the call that started it, whatever ends that call."""

import os
import signal
import threading
import time

import pytest

from model_checkpoint.engine.workers import run_all


def test_all_items_are_done_once():
    done = []

    run_all(lambda items: done.extend(items), range(1000), threads=4)

    assert sorted(done) == list(range(1000))


def test_the_first_error_stops_the_others_and_is_raised():
    done = []

    def work(items):
        for item in items:
            if item == 3:
                raise OSError("the third")
            done.append(item)
            time.sleep(0.001)

    with pytest.raises(OSError, match="the third"):
        run_all(work, range(10_000), threads=3)
    assert len(done) < 100


def test_an_interrupted_call_returns_only_when_no_worker_works_any_more():
    """A join that was interrupted takes its thread for dead; the worker would go on writing into files let go of."""
    working, lock = [0], threading.Lock()

    def work(items):
        for item in items:
            with lock:
                working[0] += 1
            if item == 0:
                time.sleep(0.1)  # by now the caller waits for this worker, the first
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.5)
            time.sleep(0.01)
            with lock:
                working[0] -= 1

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        run_all(work, range(50), threads=3)

    assert working == [0]


def test_a_thread_that_cannot_start_ends_the_call(monkeypatch):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "mckpt-worker-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    with pytest.raises(RuntimeError, match="can't start new thread"):
        run_all(lambda items: list(items), range(10), threads=3)
