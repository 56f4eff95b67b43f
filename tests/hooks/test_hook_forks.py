"""Many threads at once, and children of a fork."""

import logging
import threading

import pytest
from tests.ground.crowds import in_child, in_threads

from model_checkpoint.hooks import HookEvent, HookManager

SAVED = HookEvent.AFTER_CHECKPOINT_SAVE


def test_many_threads_fire_register_and_unregister_at_once_and_nothing_is_lost(manager):
    counts, lock = {"hook": 0}, threading.Lock()

    def count(context):
        with lock:
            counts["hook"] += 1

    manager.register_hook("count", count, [SAVED])
    manager.register_hook("timed", lambda context: None, [SAVED], timeout=60)

    def work(number):
        for step in range(50):
            manager.fire_hook(SAVED, checkpoint_id=f"{number}-{step}")
            manager.register_hook(f"{number}-{step}", lambda context: None, [SAVED], async_execution=True)
            manager.disable_hook(f"{number}-{step}")
            manager.unregister_hook(f"{number}-{step}")

    in_threads(work, range(8))

    assert counts["hook"] == 400
    assert manager.get_performance_stats("count")["total_calls"] == 400
    assert manager.get_performance_stats("timed")["total_calls"] == 400
    assert {hook.name for hook in manager.list_hooks()} == {"count", "timed"}


def test_a_forked_child_calls_timed_and_background_hooks(manager):
    manager.register_hook("timed", lambda context: "timed", [SAVED], timeout=60)
    manager.register_hook("behind", lambda context: None, [SAVED], async_execution=True)
    manager.fire_hook(SAVED)
    manager.flush()

    def work():
        assert manager.fire_hook(SAVED).results == {"timed": "timed"}
        assert manager.flush(60)
        assert manager.close()

    assert in_child(work) == 0


def test_a_child_forked_while_hooks_hang_and_wait_is_free_of_them(gate):
    manager = HookManager(max_workers=1)
    manager.register_hook("slow", gate, [SAVED], timeout=0.05)
    manager.register_hook("behind", gate, [SAVED], async_execution=True)
    for _ in range(3):
        manager.fire_hook(SAVED)

    def work():
        free = manager.get_pool_stats()
        assert (free["left_behind"], free["waiting"]) == (0, 0)
        gate.opened.set()
        assert manager.fire_hook(SAVED).results == {"slow": "through"}

    try:
        assert in_child(work) == 0
        assert manager.get_pool_stats()["left_behind"] == 1
    finally:
        gate.opened.set()
        manager.close()


@pytest.mark.parametrize("_", range(5))
def test_a_fork_in_the_midst_of_firing_never_leaves_a_lock_behind(manager, caplog, _):
    # the buffer of a log file has a lock of the interpreter's own, which no program can make anew
    caplog.set_level(logging.CRITICAL, logger="model_checkpoint")
    stop = threading.Event()
    manager.register_hook("timed", lambda context: None, [SAVED], timeout=60)
    manager.register_hook("fails", lambda context: 1 / 0, [SAVED])

    def work():
        assert manager.fire_hook(SAVED)
        assert manager.get_performance_stats()

    def fire():
        while not stop.is_set():
            manager.fire_hook(SAVED)

    threads = [threading.Thread(target=fire) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            assert in_child(work) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
