"""Several layers and functions that need others: order, circles, threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.ground.held_call import HeldCall
from tests.recompute.functions.engines import recording_engine

from model_checkpoint.recompute import (
    DependencyCycle,
    RecomputationEngine,
    RecomputationException,
)


def test_several_layers_come_in_the_order_asked_for():
    engine, _ = recording_engine("abc")

    results = engine.recompute_multiple(["c", "a", "b"])

    assert list(results.items()) == [("c", b"c"), ("a", b"a"), ("b", b"b")]


def test_they_are_computed_dependencies_first_and_still_come_in_the_order_asked_for():
    engine, order = recording_engine("abcd", a=["b"], b=["c", "d"])

    results = engine.recompute_multiple(["a", "b", "c", "d"])

    assert order == ["c", "d", "b", "a"]
    assert list(results) == ["a", "b", "c", "d"]


def test_independent_layers_keep_the_given_order():
    engine, order = recording_engine("abc")

    engine.recompute_multiple(["b", "c", "a"])

    assert order == ["b", "c", "a"]


def test_repeated_ids_run_once():
    engine, order = recording_engine("ab")

    assert list(engine.recompute_multiple(["a", "b", "a"])) == ["a", "b"]
    assert order == ["a", "b"]


def test_only_what_was_asked_for_runs_but_order_holds_through_the_rest():
    engine, order = recording_engine("abc", a=["b"], b=["c"])

    assert list(engine.recompute_multiple(["a", "c"])) == ["a", "c"]
    assert order == ["c", "a"]


def test_dependencies_run_too_when_asked():
    engine, order = recording_engine("abc", a=["b"], b=["c"])

    assert engine.recompute_multiple(["a"], with_dependencies=True) == {"a": b"a"}
    assert order == ["c", "b", "a"]


def test_an_empty_list_gives_an_empty_dict():
    assert RecomputationEngine().recompute_multiple([]) == {}


@pytest.mark.parametrize("layers", [None, "abc"], ids=repr)
def test_what_is_no_list_of_layers_is_refused(layers):
    with pytest.raises(ValueError, match="expected a list of layer ids"):
        RecomputationEngine().recompute_multiple(layers)


def test_an_unknown_layer_among_several_stops_them_before_anything_runs():
    engine, order = recording_engine("a")

    with pytest.raises(KeyError, match="no function for layer 'b'"):
        engine.recompute_multiple(["a", "b"])

    assert order == []


def test_circular_dependencies_are_an_error_that_names_them():
    engine, order = recording_engine("abc", a=["b"], b=["c"], c=["a"])

    with pytest.raises(DependencyCycle, match="a -> b -> c -> a") as caught:
        engine.recompute_multiple(["a", "b", "c"])

    assert caught.value.cycle == ("a", "b", "c", "a")
    assert isinstance(caught.value, RuntimeError)
    assert order == []


def test_functions_may_call_back_into_the_engine():
    engine = RecomputationEngine()
    engine.register_recompute_function("a", lambda: np.ones(2))
    engine.register_recompute_function("b", lambda: engine.recompute("a") + engine.get_stats().total_recomputations)

    assert engine.recompute("b").tolist() == [2, 2]


def test_functions_that_call_each_other_in_a_circle_are_told():
    engine = RecomputationEngine()
    engine.register_recompute_function("a", lambda: engine.recompute("b"))
    engine.register_recompute_function("b", lambda: engine.recompute("a"))

    with pytest.raises(DependencyCycle, match="a -> b -> a"):
        engine.recompute("a")
    with pytest.raises(DependencyCycle, match="b -> a -> b"):
        engine.recompute("b")


def test_the_error_of_a_nested_function_keeps_both_layers():
    engine = RecomputationEngine()
    engine.register_recompute_function("inner", lambda: 1 // 0)
    engine.register_recompute_function("outer", lambda: engine.recompute("inner"))

    with pytest.raises(RecomputationException, match=r"'outer' failed.*'inner' failed.*ZeroDivisionError") as caught:
        engine.recompute("outer")

    assert caught.value.layer_id == "outer"
    assert caught.value.__cause__.layer_id == "inner"


def test_a_slow_function_holds_up_no_other():
    engine = RecomputationEngine()
    slow = HeldCall(b"slow")
    engine.register_recompute_function("slow", slow)
    engine.register_recompute_function("quick", lambda: b"quick")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(engine.recompute, "slow")
        assert slow.started.wait(30)
        assert engine.recompute("quick") == b"quick"
        engine.register_recompute_function("more", lambda: b"more")
        assert engine.get_stats().total_recomputations == 1
        slow.go_on.set()

        assert waiting.result(30) == b"slow"


def test_functions_in_several_threads_run_at_the_same_time():
    engine = RecomputationEngine()
    meeting = threading.Barrier(4)
    for index in range(4):
        engine.register_recompute_function(f"layer{index}", lambda: meeting.wait(30) + 1)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(engine.recompute, [f"layer{i}" for i in range(4)]))

    assert sorted(results) == [1, 2, 3, 4]
