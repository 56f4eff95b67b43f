"""An interrupt while workers are being started ends the call; it neither waits for ever nor leaves a worker behind."""

import threading

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.engine.background.save_async import finish_saves, save_async
from model_checkpoint.engine.common.workers import Pace, run_all
from model_checkpoint.engine.jobs.running_save import RunningSave

MIB = 1 << 20


@pytest.mark.parametrize("started", [False, True], ids=["before the thread runs", "after it runs"])
def test_an_interrupt_at_the_start_of_a_worker_ends_the_call(monkeypatch, started):
    start, seen, at_work = threading.Thread.start, [], threading.Semaphore(0)

    def interrupted(thread):
        if thread.name == "mckpt-worker-2":
            if started:
                start(thread)
                assert at_work.acquire(timeout=10)
                assert at_work.acquire(timeout=10)
            raise KeyboardInterrupt("now")
        start(thread)

    def worker(items):
        for item in items:
            at_work.release()
            seen.append(item)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    caught = []

    def call():
        try:
            run_all(worker, range(1000), pace=Pace(most=2))
        except KeyboardInterrupt as error:
            caught.append(str(error))

    caller = threading.Thread(target=call, daemon=True)
    start(caller)
    caller.join(20)

    assert not caller.is_alive(), "waits for a worker that never began"
    assert caught == ["now"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mckpt-worker")]


@pytest.mark.parametrize("options", [{}, {"memory_limit": 9 * MIB}], ids=["at once", "in waves"])
def test_an_interrupt_when_all_is_copied_and_before_that_is_known_ends_the_save(tmp_path, monkeypatch, options):
    """In waves the writing thread may have written all of it, and wait for word that all is copied."""

    def interrupted(job):
        raise KeyboardInterrupt("now")

    monkeypatch.setattr(RunningSave, "staged", interrupted)
    caught = []

    def call():
        try:
            save_async(tmp_path, {"w": np.ones(4 * MIB)}, step=1, **options)
        except KeyboardInterrupt as error:
            caught.append(str(error))

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(30)
    monkeypatch.undo()

    assert not caller.is_alive(), "waits for a thread that waits for it"
    assert caught == ["now"]
    finish_saves()
    assert mc.list_checkpoints(tmp_path) == []
    assert list((tmp_path / ".staging").glob("*")) == []
    assert save_async(tmp_path, {"epoch": 1}, step=1).result(30).step == 1
