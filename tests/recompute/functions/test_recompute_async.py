"""The asynchronous engine: parallelism, order, cancellation, failures, asyncio."""

import asyncio
import os
import threading
import time

import pytest

from model_checkpoint.recompute import (
    AsyncRecomputationEngine,
    DependencyCycle,
    RecomputationException,
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
    running, most, lock, full = [], [], threading.Lock(), threading.Event()

    def work():
        with lock:
            running.append(1)
            most.append(len(running))
            if len(running) == degree:
                full.set()
        assert full.wait(60)  # the first ones wait until as many run as may
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
