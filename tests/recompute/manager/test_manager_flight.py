"""Many callers, one computation; functions that call back; circles that are told, not waited for."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.ground.held_call import HeldCall

from model_checkpoint.recompute import (
    AsyncRecomputationEngine,
    CheckpointManager,
    DependencyCycle,
    RecomputationException,
)

THREADS = 16


def together(count, work):
    """Run ``work(index)`` in ``count`` threads that start at once; results in order, the first error raised."""
    gate = threading.Barrier(count)

    def run(index):
        gate.wait()
        return work(index)

    with ThreadPoolExecutor(count) as pool:
        return [future.result(60) for future in [pool.submit(run, i) for i in range(count)]]


def test_threads_register_without_losing_one():
    manager = CheckpointManager()

    together(THREADS, lambda t: [manager.register_checkpoint(f"{t}/{i}", bytes(8)) for i in range(200)])

    assert manager.checkpoint_count == THREADS * 200
    assert manager.get_memory_stats().current_memory_used == THREADS * 200 * 8
    assert manager.get_memory_stats().peak_memory_used == THREADS * 200 * 8


def test_of_threads_that_register_one_layer_exactly_one_succeeds():
    manager = CheckpointManager()

    def attempt(thread):
        try:
            manager.register_checkpoint("a", bytes(8))
        except ValueError:
            return False
        return True

    assert sum(together(THREADS, attempt)) == 1
    assert manager.get_memory_stats().current_memory_used == 8


def test_threads_retrieve_without_losing_an_access():
    manager = CheckpointManager()
    manager.register_checkpoint("a", b"x")

    together(THREADS, lambda t: [manager.retrieve_or_recompute("a") for _ in range(500)])

    assert manager.get_access_count("a") == THREADS * 500


def test_of_threads_that_miss_one_layer_one_computes_and_all_get_its_result():
    manager = CheckpointManager()
    runs = []

    def slow():
        runs.append(1)
        time.sleep(0.05)
        return np.ones(3)

    found = together(THREADS, lambda t: manager.retrieve_or_recompute("a", slow))

    assert len(runs) == 1
    assert all(value is found[0] for value in found)
    assert manager.checkpoint_count == 1


def test_a_slow_layer_holds_up_no_other():
    manager = CheckpointManager()
    manager.register_checkpoint("stored", b"s")
    slow = HeldCall(b"slow")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(manager.retrieve_or_recompute, "slow", slow)
        assert slow.started.wait(30)
        assert manager.retrieve_or_recompute("stored") == b"s"
        assert manager.retrieve_or_recompute("quick", lambda: b"q") == b"q"
        manager.register_checkpoint("more", b"m")
        assert manager.get_memory_stats().checkpoint_count == 3
        slow.go_on.set()

        assert waiting.result(30) == b"slow"


def test_a_caller_without_a_function_joins_a_computation_under_way():
    manager = CheckpointManager()
    slow = HeldCall(b"slow")

    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(manager.retrieve_or_recompute, "a", slow)
        assert slow.started.wait(30)
        follower = pool.submit(manager.retrieve_or_recompute, "a")
        slow.go_on.set()

        assert leader.result(30) is follower.result(30)


def test_the_failure_of_the_one_that_computes_reaches_all_who_wait():
    manager = CheckpointManager()
    go_on, runs = threading.Event(), []

    def broken():
        runs.append(1)
        assert go_on.wait(30)
        raise OSError("no such shard")

    def ask(thread):
        if thread == THREADS - 1:
            time.sleep(0.1)
            go_on.set()
            return None
        with pytest.raises(RecomputationException, match="no such shard") as caught:
            manager.retrieve_or_recompute("a", broken)
        return caught.value

    errors = [error for error in together(THREADS, ask) if error is not None]

    assert len({id(error) for error in errors}) == THREADS - 1
    assert all(isinstance(error.__cause__, OSError) and error.layer_id == "a" for error in errors)
    assert manager.retrieve_or_recompute("a", lambda: b"x") == b"x"


def test_when_the_one_that_computes_is_interrupted_the_next_takes_over():
    manager = CheckpointManager()
    started = threading.Event()

    def interrupted():
        started.set()
        time.sleep(0.1)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(manager.retrieve_or_recompute, "a", interrupted)
        assert started.wait(30)
        follower = pool.submit(manager.retrieve_or_recompute, "a", lambda: b"second")

        assert follower.result(30) == b"second"
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            leader.result(30)


def test_a_recompute_function_may_fetch_earlier_layers():
    manager = CheckpointManager()

    def layer(index):
        if index == 0:
            return np.ones(2)
        return manager.retrieve_or_recompute(f"layer{index - 1}", lambda: layer(index - 1)) + 1

    last = manager.retrieve_or_recompute("layer20", lambda: layer(20))

    assert last.tolist() == [21, 21]
    assert manager.checkpoint_count == 21


def test_threads_that_need_each_others_layers_finish():
    """A ladder of layers, each needing the two before it, asked for from both ends at once."""
    manager = CheckpointManager()
    runs = []

    def need(index):
        return manager.retrieve_or_recompute(f"layer{index}", lambda: layer(index))

    def layer(index):
        runs.append(index)
        time.sleep(0.001)
        return np.ones(1) if index < 2 else need(index - 1) + need(index - 2)

    together(8, lambda t: [need(i) for i in (range(25) if t % 2 else reversed(range(25)))])

    assert manager.retrieve_or_recompute("layer24")[0] == 75025
    assert sorted(runs) == list(range(25))


def test_a_function_that_needs_its_own_layer_is_told_so():
    manager = CheckpointManager()

    with pytest.raises(DependencyCycle, match="in a circle: a -> a") as caught:
        manager.retrieve_or_recompute("a", lambda: manager.retrieve_or_recompute("a", lambda: b"x"))

    assert caught.value.cycle == ("a", "a")
    assert isinstance(caught.value, RuntimeError)
    assert manager.retrieve_or_recompute("a", lambda: b"x") == b"x"


def test_a_circle_through_several_layers_is_named():
    manager = CheckpointManager()

    def need(layer, *then):
        return manager.retrieve_or_recompute(layer, lambda: need(*then))

    with pytest.raises(DependencyCycle, match=r"a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c"):
        need("a", "b", "c", "a")

    assert manager.checkpoint_count == 0


def test_threads_that_wait_for_each_other_are_told_not_left_waiting():
    """Each holds one layer and needs the other's: nobody could ever go on."""
    manager = CheckpointManager()
    both_in = threading.Barrier(2)

    def ask(thread):
        mine, other = ("a", "b") if thread == 0 else ("b", "a")

        def function():
            both_in.wait(30)
            return manager.retrieve_or_recompute(other, lambda: b"x")

        with pytest.raises(DependencyCycle, match=r"a -> b -> a|b -> a -> b"):
            manager.retrieve_or_recompute(mine, function)

    together(2, ask)

    assert manager.retrieve_or_recompute("a", lambda: b"x") == b"x"


def test_a_circle_through_worker_threads_is_told():
    """The chain is followed by context, so handing the work to a pool does not hide it."""
    with AsyncRecomputationEngine(1) as engine, CheckpointManager(engine=engine) as manager:
        engine.register_recompute_function("a", lambda: manager.retrieve_or_recompute("b"))
        engine.register_recompute_function("b", lambda: manager.retrieve_or_recompute("a"))

        with pytest.raises(DependencyCycle, match=r"a -> b -> a|b -> a -> b"):
            manager.retrieve_or_recompute("a")


def test_two_managers_that_need_each_other_are_told():
    left, right = CheckpointManager(), CheckpointManager()

    def of_left():
        return right.retrieve_or_recompute("r", lambda: left.retrieve_or_recompute("l", lambda: b"x"))

    with pytest.raises(DependencyCycle, match=r"r -> l -> r|l -> r -> l"):
        left.retrieve_or_recompute("l", of_left)


@pytest.mark.parametrize("drop", ["clear_checkpoints", "close", "remove"])
def test_what_is_dropped_while_it_is_computed_is_handed_out_but_not_stored(drop):
    manager = CheckpointManager()
    slow = HeldCall(b"slow")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(manager.retrieve_or_recompute, "a", slow)
        assert slow.started.wait(30)
        getattr(manager, drop)(*["a"] if drop == "remove" else [])
        slow.go_on.set()

        assert waiting.result(30) == b"slow"

    if drop != "close":
        assert not manager.has_checkpoint("a")
        assert manager.get_memory_stats().current_memory_used == 0


def test_an_activation_registered_while_it_is_computed_wins():
    manager = CheckpointManager()

    def slow():
        manager.register_checkpoint("a", b"given")
        return b"computed"

    assert manager.retrieve_or_recompute("a", slow) == b"given"
    assert manager.get_memory_stats().current_memory_used == 5
