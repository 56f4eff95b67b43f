"""Hooks that nobody waits for: never in the way of a save, never lost in silence."""

import gc
import subprocess
import sys
import threading
import weakref

import pytest

from model_checkpoint.hooks import FailureKind, HookEvent, HookInvalid, HookManager, HookOutcome

SAVE, SAVED = HookEvent.BEFORE_CHECKPOINT_SAVE, HookEvent.AFTER_CHECKPOINT_SAVE


def test_a_firing_does_not_wait_for_a_background_hook(manager, gate):
    manager.register_hook("upload", gate, [SAVED], async_execution=True)

    result = manager.fire_hook(SAVED)

    assert gate.entered.wait(60)
    assert (bool(result), result.background, result.results, gate.left.is_set()) == (True, ("upload",), {}, False)


def test_a_background_hook_is_waited_for_as_long_as_it_takes_by_flush(manager, gate):
    manager.register_hook("upload", gate, [SAVED], async_execution=True)
    manager.fire_hook(SAVED, checkpoint_id="c-1")
    assert gate.entered.wait(60)

    assert manager.flush(timeout=0.01) is False
    gate.opened.set()
    assert manager.flush() is True
    (run,) = manager.timeline("c-1")
    assert (run.outcome, run.held) == (HookOutcome.DONE, 0.0)
    assert run.seconds > 0


def test_background_hooks_come_after_all_others_and_not_at_all_after_a_veto(manager):
    heard = []
    manager.register_hook("behind", lambda context: heard.append("behind"), [SAVE], async_execution=True)
    manager.register_hook("guard", lambda context: context.get("go"), [SAVE])

    manager.fire_hook(SAVE, go=False)
    manager.flush()
    assert heard == []
    manager.fire_hook(SAVE, go=True)
    manager.flush()
    assert heard == ["behind"]


def test_a_background_hook_sees_the_data_as_they_were_and_changes_nothing(manager, gate):
    seen = []

    def look(context):
        gate(context)
        seen.append(context.get("step"))

    manager.register_hook("look", look, [SAVED], async_execution=True)
    result = manager.fire_hook(SAVED, step=1)
    result.context.set("step", 2)
    gate.opened.set()
    manager.flush()

    assert (seen, result.context.data) == ([1], {"step": 2})


def test_a_veto_from_the_background_is_told_because_nobody_waited_for_it(manager):
    manager.register_hook("guard", lambda context: False, [SAVE], async_execution=True)

    assert manager.fire_hook(SAVE)
    manager.flush()

    (letter,) = manager.dead_letters()
    assert (letter.kind, letter.hook) == (FailureKind.LATE_VETO, "guard")


def test_a_background_hook_has_a_time_limit_too(manager, gate):
    manager.register_hook("upload", gate, [SAVED], timeout=0.05, async_execution=True)

    manager.fire_hook(SAVED)
    assert manager.flush(60)

    assert [letter.kind for letter in manager.dead_letters()] == [FailureKind.TIMEOUT]


def test_a_failure_in_the_background_is_a_dead_letter(manager):
    manager.register_hook("upload", lambda context: 1 / 0, [SAVED], async_execution=True)

    manager.fire_hook(SAVED)
    manager.flush()

    assert [letter.error for letter in manager.dead_letters()] == ["ZeroDivisionError: division by zero"]


def test_the_end_of_the_program_is_not_for_a_background_hook_to_decide(manager):
    manager.register_hook("end", lambda context: sys.exit(1), [SAVED], async_execution=True)
    manager.register_hook("next", lambda context: None, [SAVED], async_execution=True)

    manager.fire_hook(SAVED)
    assert manager.flush(60)

    assert sorted(run.outcome.value for run in manager.timeline()) == ["done", "failed"]


def test_no_more_calls_run_at_once_than_there_are_workers():
    running, most, lock = 0, 0, threading.Lock()
    full = threading.Barrier(3)

    def count(context):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        full.wait(60)
        with lock:
            running -= 1

    with HookManager(max_workers=3) as manager:
        manager.register_hook("count", count, [SAVED], async_execution=True)
        for _ in range(9):
            manager.fire_hook(SAVED)
        assert manager.flush(60)

    assert most == 3


def test_the_queue_is_bounded_and_what_finds_no_room_is_a_dead_letter(gate):
    with HookManager(max_workers=1) as manager:
        manager.register_hook("upload", gate, [SAVED], async_execution=True)
        manager.fire_hook(SAVED, step=0)
        assert gate.entered.wait(60)

        results = [manager.fire_hook(SAVED, step=step) for step in range(1, 1004)]

        assert all(results)
        assert manager.get_pool_stats()["pool_failures"] == 3
        assert [letter.data for letter in manager.dead_letters()] == [{"step": step} for step in (1001, 1002, 1003)]
        assert [failure.kind for failure in results[-1].errors] == [FailureKind.POOL]
        gate.opened.set()
        assert manager.flush(60)
        assert manager.replay_dead_letters().done == (1, 2, 3)


def test_without_a_background_every_hook_is_waited_for(gate):
    with HookManager(enable_async=False) as manager:
        manager.register_hook("guard", lambda context: False, [SAVE], async_execution=True)

        assert manager.fire_hook(SAVE).stopped_by == "guard"


def test_closing_waits_for_what_was_begun_and_cleans_up_afterwards(gate):
    heard = []

    class Upload:
        async_execution = True

        def on_after_checkpoint_save(self, context):
            gate(context)
            heard.append("call")

        def on_cleanup(self):
            heard.append("cleanup")

    manager = HookManager()
    manager.register_hook(Upload())
    manager.fire_hook(SAVED)
    assert gate.entered.wait(60)
    threading.Timer(0.05, gate.opened.set).start()

    assert manager.close(timeout=60) is True
    assert heard == ["call", "cleanup"]


def test_closing_gives_up_on_what_hangs_and_says_so(gate, caplog):
    manager = HookManager(max_workers=1)
    manager.register_hook("upload", gate, [SAVED], async_execution=True)
    for _ in range(3):
        manager.fire_hook(SAVED)

    assert manager.close(timeout=0.01) is False
    assert "calls of background hooks were dropped" in caplog.text


def test_a_closed_manager_fires_without_hooks_and_a_save_goes_on(manager):
    manager.register_hook("tell", lambda context: False, [SAVE])
    manager.close()

    assert manager.fire_hook(SAVE)


def test_a_forgotten_manager_goes_and_takes_its_threads_along():
    manager = HookManager()
    manager.register_hook("timed", lambda context: None, [SAVE], timeout=30)
    manager.register_hook("behind", lambda context: None, [SAVE], async_execution=True)
    manager.fire_hook(SAVE)
    manager.flush()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("mckpt-hook")]
    gone = weakref.ref(manager)

    del manager
    gc.collect()

    assert gone() is None
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_context_does_not_live_longer_than_its_calls(manager):
    class Model:
        pass

    model = Model()
    gone = weakref.ref(model)
    manager.register_hook("timed", lambda context: None, [SAVE], timeout=30)
    manager.register_hook("behind", lambda context: None, [SAVE], async_execution=True)
    manager.register_hook("fails", lambda context: 1 / 0, [SAVE])

    manager.fire_hook(SAVE, model=model)
    manager.flush()
    del model
    gc.collect()

    assert gone() is None
    assert manager.dead_letters()[0].left_out == ("model",)


@pytest.mark.parametrize("workers", [0, -1])
def test_a_manager_needs_a_worker(workers):
    with pytest.raises(HookInvalid, match="max_workers is at least 1"):
        HookManager(max_workers=workers)


def test_the_end_of_a_program_waits_a_moment_for_background_hooks():
    script = """
import sys, threading, time
from model_checkpoint.hooks import HookManager
manager = HookManager()
begun = threading.Event()
def upload(context):
    begun.set()
    time.sleep(0.2)
    sys.stdout.write("uploaded")
    sys.stdout.flush()
manager.register_hook("upload", upload, ["after_checkpoint_save"], async_execution=True)
manager.fire_hook("after_checkpoint_save")
begun.wait(60)
"""
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "uploaded"


def test_the_end_of_a_program_cleans_up_but_not_in_a_child_of_it():
    script = """
import os, sys
from model_checkpoint.hooks import BaseHook, HookManager
class Life(BaseHook):
    def execute(self, context): ...
    def on_cleanup(self):
        os.write(1, f"cleaned up by {'parent' if os.getpid() == parent else 'child'}".encode())
parent = os.getpid()
manager = HookManager()
manager.register_hook(Life())
if (child := os.fork()) == 0:
    sys.exit(0)
os.waitpid(child, 0)
"""
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "cleaned up by parent"
