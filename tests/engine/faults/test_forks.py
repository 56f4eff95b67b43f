"""A process may fork at any moment: the child finds every lock free, saves and loads, and the parent's save goes on."""

import itertools
import os
import signal
import threading
import traceback

import pytest
from tests.engine.faults.fault_ground import WAYS, epoch_of, quick_folder

import model_checkpoint as mc
from model_checkpoint import forks
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


@pytest.fixture
def folder(tmp_path):
    with quick_folder(tmp_path) as path:
        yield path


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_forked_at_every_call_of_a_save_the_child_saves_and_loads(folder, way):
    """The same store in the child: its locks may be held by the very call that forked."""
    forked = at = 0
    while True:
        at += 1
        root = folder / str(at)
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
    guard, changed, held, over = forks.lock(), forks.condition(), threading.Event(), threading.Event()

    def hold():
        with guard, changed:
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        end_after(lambda: (guard.__enter__(), changed.__enter__(), changed.notify_all()))
    over.set()
    thread.join()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


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


def test_every_lock_that_outlives_a_call_is_of_the_registry():
    """Module-level locks cannot be made by hand: a child forked while one is held would wait for ever."""
    import ast
    from pathlib import Path

    by_hand = []
    for path in Path(mc.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            values = [node, *node.body] if isinstance(node, ast.ClassDef) else [node]
            for value in values:
                if isinstance(value, (ast.Assign, ast.AnnAssign)) and value.value is not None:
                    text = ast.unparse(value.value)
                    if text.startswith(("threading.Lock", "threading.RLock", "threading.Condition")):
                        by_hand.append(f"{path.name}: {ast.unparse(value)}")
    assert by_hand == []
