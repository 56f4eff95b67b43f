"""Workers share items, grow to the pace of the medium, and stop together."""

import os
import signal
import threading
import time

import pytest

from model_checkpoint.engine.common.workers import Pace, blocks_read, run_all, yield_to_others

MOST = 64
FIRST = Pace(most=MOST).first  # depends on the machine


def crew(work, items, *, most=MOST):
    """Run ``work`` on every item; return the items seen and the threads that saw them."""
    pace, seen, names = Pace(most=most), [], set()

    def worker(mine):
        for item in mine:
            work(pace, item)
            seen.append(item)
            names.add(threading.current_thread().name)

    run_all(worker, items, pace=pace)
    return sorted(seen), names


def wait_for_the_medium(pace, item):
    sum(range(2000))
    with pace.waiting():
        time.sleep(0.01)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_every_item_is_worked_on_exactly_once(count):
    seen, _ = crew(lambda pace, item: None, list(range(count)))

    assert seen == list(range(count))


def test_more_workers_come_when_the_first_ones_wait_for_the_medium():
    """A worker that sleeps in a write leaves its core to another one."""
    _, names = crew(wait_for_the_medium, list(range(20 * FIRST)))

    assert FIRST < len(names) <= MOST


def test_the_number_of_workers_stays_below_what_memory_allows():
    _, names = crew(wait_for_the_medium, list(range(60)), most=3)

    assert len(names) <= 3


def test_waiting_for_anything_but_the_medium_brings_no_more_workers():
    """Threads that wait for each other get slower, not faster, when there are more of them."""
    _, names = crew(lambda pace, item: time.sleep(0.002), list(range(20 * FIRST)))

    assert len(names) <= FIRST


def test_time_without_work_at_what_came_from_a_cache_brings_no_more_workers():
    """It is time without a core: other ranks of the machine have them all."""

    def read(pace, item):
        sum(range(2000))
        with pace.waiting(cached=True):
            time.sleep(0.002)

    _, names = crew(read, list(range(20 * FIRST)))

    assert len(names) <= FIRST


@pytest.mark.skipif(blocks_read() is None, reason="this system does not tell what came from a medium")
def test_a_cache_that_must_ask_the_medium_brings_more_workers(tmp_path):
    size, count = 64 << 10, 20 * FIRST
    (tmp_path / "data").write_bytes(bytes(size) * count)
    file = os.open(tmp_path / "data", os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    before = blocks_read()

    def read(pace, item):
        with pace.waiting(cached=True):
            os.pread(file, size, item * size)
            time.sleep(0.01)

    read(Pace(most=1), 0)
    if blocks_read() == before:
        pytest.skip("this file system has no medium")
    _, names = crew(read, list(range(1, count)))
    os.close(file)

    assert FIRST < len(names) <= MOST


def test_the_first_failure_stops_all_and_reaches_the_caller():
    done = []

    def work(pace, item):
        wait_for_the_medium(pace, item)
        if item == 12:
            raise RuntimeError("item 12 is bad")
        done.append(item)

    with pytest.raises(RuntimeError, match="item 12 is bad"):
        crew(work, list(range(1000)))

    assert len(done) < 500
    assert not [t for t in threading.enumerate() if t.name.startswith("mckpt-worker")]


def test_an_interrupted_call_returns_only_when_no_worker_works_any_more():
    """A join that was interrupted takes its thread for dead; the worker would go on writing into files let go of."""
    working, begun, lock = [0], [], threading.Lock()

    def work(items):
        for item in items:
            begun.append(item)
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
        run_all(work, range(1000), pace=Pace(most=3))

    assert working == [0]
    assert len(begun) < 1000  # nothing new was begun


@pytest.mark.parametrize("refused", ["mckpt-worker-1", "mckpt-worker-2", "mckpt-worker"])
def test_where_no_thread_can_start_the_caller_does_the_work(monkeypatch, refused):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith(refused):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done = []

    run_all(lambda items: done.extend(items), range(10), pace=Pace(most=3))

    assert sorted(done) == list(range(10))


@pytest.mark.skipif(not hasattr(os, "setpriority"), reason="threads have no rank here")
def test_a_thread_that_yields_to_others_has_a_lower_rank_and_no_other_thread_has():
    own, found = os.getpriority(os.PRIO_PROCESS, 0), []

    def work():
        yield_to_others(19)
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert (found, os.getpriority(os.PRIO_PROCESS, 0)) == ([19], own)
