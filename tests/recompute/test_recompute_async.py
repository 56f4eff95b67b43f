"""The asynchronous engine: parallelism, order, cancellation, failures, asyncio."""

import asyncio
import gc
import os
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
    RecomputationException,
    cancellation_requested,
)


@pytest.fixture
def engine():
    with AsyncRecomputationEngine(4) as engine:
        yield engine


def test_a_layer_is_recomputed_on_a_worker(engine):
    engine.register_recompute_function("a", threading.current_thread)

    handle = engine.recompute_async("a")

    assert handle.result(30) is not threading.current_thread()
    assert handle.done()


def test_the_blocking_calls_give_the_same(engine):
    engine.register_recompute_function("a", lambda: b"a")
    engine.register_recompute_function("b", lambda: b"b")

    assert engine.recompute("a") == b"a"
    assert list(engine.recompute_multiple(["b", "a"])) == ["b", "a"]


def test_handles_can_be_awaited(engine):
    engine.register_recompute_function("a", lambda: b"a")
    engine.register_recompute_function("b", lambda: b"b")

    async def ask():
        one = await engine.recompute_async("a")
        several = await asyncio.gather(engine.recompute_async("b"), engine.recompute_multiple_async(["b", "a"]))
        return one, several

    assert asyncio.run(ask()) == (b"a", [b"b", {"b": b"b", "a": b"a"}])


def test_the_event_loop_goes_on_while_a_function_runs(engine):
    go_on = threading.Event()
    engine.register_recompute_function("a", lambda: go_on.wait(30) and b"a")

    async def ask():
        handle = engine.recompute_async("a")
        await asyncio.sleep(0)
        go_on.set()
        return await handle

    assert asyncio.run(ask()) == b"a"


def test_layers_are_recomputed_in_parallel(engine):
    meeting = threading.Barrier(4)
    for index in range(4):
        engine.register_recompute_function(f"layer{index}", lambda: meeting.wait(30) + 1)

    results = engine.recompute_multiple_async([f"layer{i}" for i in range(4)]).result(30)

    assert sorted(results.values()) == [1, 2, 3, 4]


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_no_more_run_at_once_than_allowed(degree):
    running, most, lock = [], [], threading.Lock()

    def work():
        with lock:
            running.append(1)
            most.append(len(running))
        time.sleep(0.005)
        with lock:
            running.pop()
        return b"x"

    with AsyncRecomputationEngine(degree) as engine:
        for index in range(20):
            engine.register_recompute_function(f"layer{index}", work)
        handles = [engine.recompute_async(f"layer{i}") for i in range(10)]
        handles.append(engine.recompute_multiple_async([f"layer{i}" for i in range(20)]))
        for handle in handles:
            handle.result(30)

    assert max(most) == degree


@pytest.mark.parametrize("degree", [-1, 0, -7])
def test_a_degree_below_one_means_one_per_cpu(degree):
    with AsyncRecomputationEngine(degree) as engine:
        assert engine.max_degree_of_parallelism == os.cpu_count()


def test_the_default_degree_is_one_per_cpu():
    with AsyncRecomputationEngine() as engine:
        assert engine.max_degree_of_parallelism == os.cpu_count()


def test_dependencies_are_done_before_what_needs_them_starts(engine):
    finished = []

    def work(layer, needs):
        assert set(needs) <= set(finished), f"{layer} started before {needs}"
        time.sleep(0.001)
        finished.append(layer)
        return layer

    needs = {str(i): [str(j) for j in range(max(0, i - 3), i)] for i in range(30)}
    for layer, needed in needs.items():
        engine.register_recompute_function(layer, lambda layer=layer, needed=needed: work(layer, needed), needed)
    wanted = [str(i) for i in reversed(range(30))]

    results = engine.recompute_multiple_async(wanted).result(30)

    assert list(results) == wanted
    assert len(finished) == 30


def test_a_circle_is_an_error_that_names_it(engine):
    engine.register_recompute_function("a", lambda: b"a", ["b"])
    engine.register_recompute_function("b", lambda: b"b", ["a"])

    with pytest.raises(DependencyCycle, match="a -> b -> a"):
        engine.recompute_multiple_async(["a", "b"])


def test_functions_that_ask_for_each_other_are_told(engine):
    engine.register_recompute_function("a", lambda: engine.recompute("b"))
    engine.register_recompute_function("b", lambda: engine.recompute("a"))

    with pytest.raises(DependencyCycle, match="a -> b -> a"):
        engine.recompute("a")


def test_empty_unknown_blank_and_missing_layers(engine):
    assert engine.recompute_multiple_async([]).result(30) == {}
    with pytest.raises(KeyError, match="no function for layer 'x'"):
        engine.recompute_async("x")
    with pytest.raises(ValueError, match="not blank"):
        engine.recompute_async(" ")
    with pytest.raises(ValueError, match="not blank"):
        engine.recompute_multiple_async([""])
    with pytest.raises(ValueError, match="expected a list of layer ids"):
        engine.recompute_multiple_async(None)


def test_a_failing_function_gives_an_error_with_layer_and_cause(engine):
    engine.register_recompute_function("a", lambda: 1 // 0)

    with pytest.raises(RecomputationException, match="'a' failed: ZeroDivisionError") as caught:
        engine.recompute_async("a").result(30)

    assert caught.value.layer_id == "a"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_function_that_returns_none_is_an_error_and_the_next_call_works(engine):
    answers = [None, b"x"]
    engine.register_recompute_function("a", lambda: answers.pop(0))

    with pytest.raises(RecomputationException, match="returned None"):
        engine.recompute("a")

    assert engine.recompute("a") == b"x"


def test_after_a_failure_nothing_more_is_started():
    ran = []
    with AsyncRecomputationEngine(1) as engine:
        engine.register_recompute_function("bad", lambda: 1 // 0)
        engine.register_recompute_function("after", lambda: ran.append(1) or b"x", ["bad"])
        engine.register_recompute_function("free", lambda: ran.append(2) or b"x")

        with pytest.raises(RecomputationException, match="'bad' failed"):
            engine.recompute_multiple(["bad", "free", "after"])

    assert ran == []


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
    go_on, started, finished = threading.Event(), threading.Event(), []
    engine = AsyncRecomputationEngine(1)
    engine.register_recompute_function(
        "long", lambda: (started.set(), go_on.wait(30), time.sleep(0.02), finished.append(1)) and b"long"
    )
    engine.register_recompute_function("queued", lambda: b"x")
    running, queued = engine.recompute_async("long"), engine.recompute_async("queued")
    assert started.wait(30)
    threading.Timer(0.02, go_on.set).start()

    engine.close()

    assert finished == [1]
    assert running.result(0) == b"long"
    with pytest.raises(RecomputationCancelled, match="was cancelled"):
        queued.result(0)


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
