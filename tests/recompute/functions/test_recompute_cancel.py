"""Cancelling, waiting and closing: what stops, what goes on, and what is released."""

import asyncio
import gc
import threading
import time
import weakref
from concurrent.futures import CancelledError, ThreadPoolExecutor

import numpy as np
import pytest

from model_checkpoint.recompute import (
    AsyncRecomputationEngine,
    CheckpointManager,
    ClosedError,
    DependencyCycle,
    DirectCall,
    RecomputationCancelled,
    RecomputationEngine,
    cancellation_requested,
)


@pytest.fixture
def engine():
    with AsyncRecomputationEngine(4) as engine:
        yield engine


def test_a_cancelled_token_keeps_work_from_starting(engine):
    ran = []
    engine.register_recompute_function("a", lambda: ran.append(1) or b"x")
    cancel = threading.Event()
    cancel.set()

    with pytest.raises(RecomputationCancelled, match="recomputation of a was cancelled") as caught:
        engine.recompute_async("a", cancel).result(30)

    assert isinstance(caught.value, CancelledError)
    assert ran == []


def test_a_token_set_while_several_run_stops_the_rest():
    ran, cancel = [], threading.Event()
    with AsyncRecomputationEngine(1) as engine:
        engine.register_recompute_function("a", lambda: (ran.append("a"), cancel.set()) and b"a")
        engine.register_recompute_function("b", lambda: ran.append("b") or b"b", ["a"])

        with pytest.raises(RecomputationCancelled, match="recomputation of a, b was cancelled"):
            engine.recompute_multiple(["a", "b"], cancel)

    assert ran == ["a"]


def test_a_running_function_can_see_that_it_is_no_longer_wanted(engine):
    started, cancel, saw = threading.Event(), threading.Event(), threading.Event()

    def patient():
        started.set()
        for _ in range(3000):
            if cancellation_requested():
                saw.set()
                break
            time.sleep(0.01)
        return b"half done"

    engine.register_recompute_function("a", patient)
    handle = engine.recompute_async("a", cancel)
    assert started.wait(30)
    cancel.set()

    with pytest.raises(RecomputationCancelled, match="was cancelled"):
        handle.result(30)
    assert saw.is_set()
    assert not cancellation_requested()


def test_queued_work_can_be_cancelled_by_its_handle_and_running_work_not():
    go_on, started, ran = threading.Event(), threading.Event(), []
    with AsyncRecomputationEngine(1) as engine:
        engine.register_recompute_function("long", lambda: (started.set(), go_on.wait(30)) and b"long")
        engine.register_recompute_function("queued", lambda: ran.append(1) or b"x")
        running, queued = engine.recompute_async("long"), engine.recompute_async("queued")
        assert started.wait(30)

        assert queued.cancel() is True
        assert queued.done()
        assert running.cancel() is False
        go_on.set()

        assert running.result(30) == b"long"
        assert running.cancel() is False
        with pytest.raises(RecomputationCancelled, match="was cancelled"):
            queued.result(30)
        assert engine.recompute("queued") == b"x"
        assert ran == [1]


def test_cancelling_the_task_that_awaits_cancels_the_work():
    go_on, ran = threading.Event(), []
    with AsyncRecomputationEngine(1) as engine:
        engine.register_recompute_function("long", lambda: go_on.wait(30) and b"long")
        engine.register_recompute_function("queued", lambda: ran.append(1) or b"x")

        async def ask():
            long = engine.recompute_async("long")
            task = asyncio.ensure_future(wait_for(engine.recompute_async("queued")))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError, match=r"^$"):
                await task
            go_on.set()
            return await long

        async def wait_for(handle):
            return await handle

        assert asyncio.run(ask()) == b"long"

    assert ran == []


def test_waiting_may_time_out_and_the_work_goes_on(engine):
    go_on = threading.Event()
    engine.register_recompute_function("a", lambda: go_on.wait(30) and b"a")
    handle = engine.recompute_async("a")

    with pytest.raises(TimeoutError, match=r"^$"):
        handle.result(0.01)
    go_on.set()

    assert handle.result(30) == b"a"


@pytest.mark.parametrize("degree", [1, 2])
def test_functions_may_recompute_others_however_few_workers_there_are(degree):
    with AsyncRecomputationEngine(degree) as engine:
        engine.register_recompute_function("0", lambda: 1)
        for index in range(1, 8):
            below = str(index - 1)
            engine.register_recompute_function(
                str(index),
                lambda below=below: engine.recompute(below) + sum(engine.recompute_multiple([below]).values()),
            )

        assert engine.recompute_async("7").result(60) == 2**7


def test_a_worker_that_waits_for_a_layer_of_the_manager_does_not_starve_it():
    """The only worker computes 'a' and waits for 'b', which a second thread is about to compute."""
    with AsyncRecomputationEngine(1) as engine, CheckpointManager(engine=engine) as manager:
        in_a, b_is_led = threading.Event(), threading.Event()

        def a():
            in_a.set()
            assert b_is_led.wait(30)
            return manager.retrieve_or_recompute("b") + b"a"

        def b():
            b_is_led.set()
            time.sleep(0.02)
            return b"b"

        engine.register_recompute_function("a", a)
        engine.register_recompute_function("b", b)
        with ThreadPoolExecutor(1) as pool:
            first = engine.recompute_async("a")
            assert in_a.wait(30)
            second = pool.submit(manager.retrieve_or_recompute, "b")

            assert second.result(30) == b"b"
            assert first.result(30) == b"ba"


def test_a_circle_through_a_handle_made_elsewhere_is_told():
    """The worker computes 'x' and waits for 'f', whose function waits for the handle of 'x'."""
    with AsyncRecomputationEngine(1) as engine, CheckpointManager() as manager:
        f_is_led, in_x = threading.Event(), threading.Event()

        def x():
            in_x.set()
            assert f_is_led.wait(30)
            return manager.retrieve_or_recompute("f")

        engine.register_recompute_function("x", x)
        handle = engine.recompute_async("x")

        def f():
            f_is_led.set()
            assert in_x.wait(30)
            return handle.result()

        with pytest.raises(DependencyCycle, match=r"f -> x -> f|x -> f -> x"):
            manager.retrieve_or_recompute("f", f)
        with pytest.raises(DependencyCycle, match=r"f -> x -> f|x -> f -> x"):
            handle.result(30)


def test_results_are_released_with_their_handle(engine):
    engine.register_recompute_function("a", lambda: np.ones(3))
    handle = engine.recompute_async("a")
    watch = weakref.ref(handle.result(30))

    del handle
    deadline = time.monotonic() + 30
    while watch() is not None and time.monotonic() < deadline:
        gc.collect()  # the worker may still be putting its work away
        time.sleep(0.01)

    assert watch() is None


def test_an_engine_can_be_shared_with_blocking_use():
    plain = RecomputationEngine(strategy=DirectCall())
    plain.register_recompute_function("a", lambda: b"a")

    with AsyncRecomputationEngine(2, engine=plain) as engine:
        assert engine.recompute("a") == b"a"
        assert engine.engine is plain
        assert engine.has_recompute_function("a")

    assert plain.recompute("a") == b"a"
    assert plain.get_stats().total_recomputations == 2


def test_stats_are_those_of_the_engine(engine):
    engine.register_recompute_function("a", lambda: b"a")
    engine.recompute("a")

    assert engine.get_stats().total_recomputations == 1
    assert engine.get_layer_stats("a").call_count == 1
    assert engine.get_layer_stats("b") is None
    engine.clear()
    assert engine.get_stats().registered_layer_count == 0


def test_closing_cancels_what_is_queued_and_waits_for_what_runs():
    started, finished, queue = threading.Event(), [], []
    engine = AsyncRecomputationEngine(1)

    def long():
        started.set()
        end = time.monotonic() + 60
        while not (queue and queue[0].done()) and time.monotonic() < end:  # until close has cancelled the other
            time.sleep(0.001)
        finished.append("long")
        return b"long"

    engine.register_recompute_function("long", long)
    engine.register_recompute_function("queued", lambda: finished.append("queued") or b"x")
    running = engine.recompute_async("long")
    assert started.wait(60)
    queue.append(engine.recompute_async("queued"))

    engine.close()

    assert finished == ["long"]
    assert running.result(0) == b"long"
    with pytest.raises(RecomputationCancelled, match="was cancelled"):
        queue[0].result(0)


def test_closing_twice_is_harmless_and_every_use_afterwards_is_refused():
    engine = AsyncRecomputationEngine(1)
    engine.close()
    engine.dispose()

    for call in (
        lambda: engine.register_recompute_function("a", lambda: b"x"),
        lambda: engine.has_recompute_function("a"),
        lambda: engine.recompute_async("a"),
        lambda: engine.recompute_multiple_async(["a"]),
        lambda: engine.recompute("a"),
        lambda: engine.recompute_multiple(["a"]),
        lambda: engine.clear(),
        lambda: engine.get_stats(),
        lambda: engine.get_layer_stats("a"),
    ):
        with pytest.raises(ClosedError, match="async recomputation engine: it is closed"):
            call()


def test_a_function_may_close_its_own_engine():
    engine = AsyncRecomputationEngine(1)
    engine.register_recompute_function("a", lambda: engine.close() or b"a")

    assert engine.recompute_async("a").result(30) == b"a"


def test_a_long_chain_of_many_layers_is_done_quickly_enough_to_be_linear():
    with AsyncRecomputationEngine(2, strategy=DirectCall()) as engine:
        for index in range(3000):
            engine.register_recompute_function(str(index), lambda: b"x", [str(index - 1)] if index else None)

        assert len(engine.recompute_multiple([str(i) for i in range(3000)])) == 3000
