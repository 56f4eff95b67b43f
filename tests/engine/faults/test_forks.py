"""A process may fork at any moment: the child finds every lock free, saves and loads, and the parent's save goes on."""

import itertools
import os
import signal
import threading
import traceback
from pathlib import Path

import pytest
from tests.engine.faults.fault_ground import WAYS, epoch_of
from tests.engine.faults.made_by_hand import made_by_hand

import model_checkpoint as mc
from model_checkpoint import forks
from model_checkpoint.api.jobs.job_runner import JobRunner
from model_checkpoint.recompute import AsyncRecomputationEngine
from model_checkpoint.recompute.errors import RecomputationCancelled
from model_checkpoint.recompute.functions.single_flight import SingleFlight
from model_checkpoint.storage import InMemoryStore
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing import FaultyCalls

HANGS = 30  # seconds after which a child counts as hung


class ForkingCalls(FaultyCalls):
    """The system; at call ``at`` it forks a child that runs ``work``, waits for it and keeps how it ended."""

    def __init__(self, at, work):
        super().__init__()
        self.at, self.work, self.ended = at, work, None
        self.calls = itertools.count(1)  # each thread that calls gets a number of its own

    def perform(self, name, action, *args, **kwargs):
        if next(self.calls) == self.at:
            child = os.fork()
            if child == 0:
                end_after(self.work)
            self.ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return super().perform(name, action, *args, **kwargs)


def end_after(work):
    """In a child: run ``work`` and end; one that hangs is ended by a signal."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(HANGS)
    try:
        work()
    except BaseException:  # noqa: BLE001  # the parent learns of it by the exit code
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class Slow:
    """Work that has begun and goes on until it is let go."""

    def __init__(self, answer=None):
        self.answer, self.begun, self.over = answer, threading.Event(), threading.Event()

    def __call__(self, *_):
        self.begun.set()
        self.over.wait()
        return self.answer


def ended_in_child_while(slow, work, begin=lambda: None):
    """How a child ended that ran ``work``, forked in the middle of ``slow``, which a thread comes to by ``begin``."""
    thread = threading.Thread(target=begin)
    thread.start()
    slow.begun.wait()
    child = os.fork()
    if child == 0:
        end_after(work)
    slow.over.set()
    thread.join()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_forked_at_every_call_of_a_save_the_child_saves_and_loads(quick_folder, way):
    """The same store in the child: its locks may be held by the very call that forked."""
    forked = at = 0
    while True:
        at += 1
        root = quick_folder / str(at)
        way.save(LocalStore(root), 1, step=1)
        store = LocalStore(root, calls=ForkingCalls(at, work=lambda root=root: None))
        calls = store._root.calls
        calls.work = lambda store=store, root=root: save_and_load(way, store, root)

        way.save(store, 2, step=2)

        if calls.ended is None:
            break
        assert calls.ended == 0, f"call {at}"
        assert {epoch_of(mc.load(root, step=step)) for step in (1, 2, 3)} == {1, 2, 3}
        forked += 1
    assert forked >= 25


def save_and_load(way, store, root):
    way.save(store, 3, step=3)
    assert epoch_of(mc.load(root, step=3)) == 3
    mc.finish_saves()


def test_a_lock_held_by_a_thread_that_did_not_come_along_is_free_in_the_child():
    guard, again, changed, slow = forks.lock(), forks.rlock(), forks.condition(), Slow()

    def hold():
        with guard, again, changed:
            slow()

    def work():
        with guard, again, changed:
            changed.notify_all()

    assert ended_in_child_while(slow, work, hold) == 0


def test_a_method_is_called_in_children_as_long_as_its_object_lives():
    class Pool:
        threads = 2

        def begin_anew(self):
            self.threads = 0

    pool = Pool()
    forks.in_child(pool.begin_anew)
    reset = forks._resets[-1]
    child = os.fork()
    if child == 0:
        os._exit(pool.threads)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.threads == 2

    del pool
    forks.in_child(Pool().begin_anew)
    assert reset not in forks._resets


# each lives for one save, load, file, task or pass, whose threads a child does not have either
FOR_ONE_CALL = {
    ("engine/background/lazy.py", "Lazy"),
    ("engine/background/staging_queue.py", "StagingQueue"), ("engine/common/meter.py", "Meter"),
    ("engine/common/workers.py", "Pace"), ("engine/common/workers.py", "_Queue"),
    ("engine/common/workers.py", "_Seat"), ("engine/jobs/running_save.py", "RunningSave"),
    ("engine/reading/chunks/shared_slots.py", "SharedSlots"),
    ("engine/writing/compress.py", "FileCompressor"), ("engine/writing/rank_saves/unsharded.py", "_ChunksAtHand"),
    ("engine/writing/shared_pages.py", "SharedPages"), ("engine/writing/slabs.py", "FileJob"),
    ("hooks/calling/timeout_threads.py", "_Task"), ("hooks/calling/timeout_threads.py", "_Thread"),
    ("recompute/auto/running/region_frame.py", "RegionFrame"),
    ("recompute/functions/async_recomputation.py", "_Batch"), ("storage/local/data_files/files.py", "LocalWriter"),
    ("storage/memory_attempts.py", "MemoryWriter"), ("storage/objects/leases.py", "Lease"),
    ("storage/objects/reader.py", "ObjectReader"), ("storage/objects/writer.py", "ObjectWriter"),
    ("storage/objects/writer.py", "_Stream"),
}  # fmt: skip


def test_every_lock_and_pool_that_outlives_a_call_is_of_the_registry():
    """None is made by hand, for a module, a class or an object: a child forked while it is held would wait for ever."""
    package = Path(mc.__file__).parent
    made = {
        (path.relative_to(package).as_posix(), holder): lines
        for path in package.rglob("*.py")
        if path.name != "forks.py"
        for holder, lines in made_by_hand(path.read_text()).items()
    }

    assert {place: lines for place, lines in made.items() if place not in FOR_ONE_CALL} == {}
    assert made.keys() >= FOR_ONE_CALL


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import threading\nguard = threading.Lock()", {"": [2]}),
        ("from threading import Lock as L\ndef work():\n    guard = L()", {"": [3]}),
        ("import threading as t\nclass A:\n    turn: t.RLock = field(default_factory=t.RLock)", {"A": [3]}),
        ("import threading\nclass A:\n    def __init__(self, lock):\n        self.c = threading.Condition(lock)", {}),
        ("import concurrent.futures\npool = concurrent.futures.ThreadPoolExecutor(2)", {"": [2]}),
        ("from concurrent.futures import ThreadPoolExecutor as T\nclass A:\n def f(s):\n  s.a, b = T(), 1", {"A": [4]}),
        ("from concurrent.futures import ThreadPoolExecutor\ndef f():\n    with ThreadPoolExecutor(2): pass", {}),
        ("from concurrent.futures import ThreadPoolExecutor\ndef f():\n    return ThreadPoolExecutor(2)", {"": [3]}),
        ("from queue import SimpleQueue\nclass A:\n def f(s):\n  s.a = SimpleQueue()\n  forks.in_child(s.g)", {}),
        ("import threading\nclass A:\n def f(s):\n  s.a = threading.Lock()\n  forks.in_child(s.g)", {"A": [4]}),
        ("import threading, queue\nturns, inbox = threading.Semaphore(2), queue.Queue()", {"": [2, 2]}),
        ("from threading import Event\nover = Event()\ndef f():\n    mine = Event()", {"": [2]}),
    ],
)
def test_what_a_source_makes_by_hand_is_found_under_whichever_name(source, lines):
    assert made_by_hand(source) == lines


def test_a_root_in_memory_is_of_use_in_a_child_forked_while_another_thread_is_in_it():
    store, slow = InMemoryStore("memory://forks"), Slow()
    mc.save(store, {"n": 1}, step=1)

    def hold():
        with store._bucket.guard:
            slow()

    assert ended_in_child_while(slow, lambda: mc.save(store, {"n": 2}, step=2), hold) == 0


def test_a_child_recomputes_with_workers_of_its_own_and_does_not_wait_for_its_parent_s():
    """Its parent's worker is in the middle of a layer when it forks, and holds whatever it holds."""
    slow = Slow(b"slow")
    with AsyncRecomputationEngine(1) as engine:
        engine.register_recompute_function("slow", slow)
        engine.register_recompute_function("quick", lambda: b"quick")
        under_way = engine.recompute_async("slow")

        def work():
            assert engine.recompute("quick") == b"quick"
            with pytest.raises(RecomputationCancelled, match="slow was cancelled"):
                under_way.result(timeout=10)
            engine.close()

        assert ended_in_child_while(slow, work) == 0
        assert under_way.result() == b"slow"


def test_a_child_computes_what_its_parent_has_under_way():
    flights, slow = SingleFlight(), Slow()

    def work():
        assert flights.run("a", lambda _: 5) == (5, True)

    assert ended_in_child_while(slow, work, lambda: flights.run("a", slow)) == 0


def test_a_job_started_in_a_child_runs_and_knows_nothing_of_its_parent_s():
    """The threads of the parent are not there; the same work, under way there, would be waited for without end."""
    runner, slow = JobRunner(), Slow()

    def work():
        again = runner.start("count", "a", "counting", lambda job: {"sum": 3})
        assert runner.wait(again.id, timeout=10).result == {"sum": 3}
        runner.close()

    job = runner.start("count", "a", "counting", slow)

    assert ended_in_child_while(slow, work) == 0
    assert runner.wait(job.id, timeout=10).state == "done"
    runner.close()
