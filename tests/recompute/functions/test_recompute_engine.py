"""The engine: registration, runs, order, failures, statistics."""

import gc
import random
import time
import weakref

import numpy as np
import pytest
from tests.recompute.functions.engines import recording_engine

from model_checkpoint.recompute import (
    AsyncRecomputationEngine,
    CheckpointManager,
    ClosedError,
    DirectCall,
    ExactReplay,
    LayerNotFound,
    RecomputationEngine,
    RecomputationException,
    RecomputationStats,
    RecomputationStrategy,
    is_recomputing,
)
from model_checkpoint.recompute.functions.recomputation_engine import is_computing


def test_a_registered_function_is_there():
    engine = RecomputationEngine()

    engine.register_recompute_function("a", lambda: b"x")

    assert engine.has_recompute_function("a")
    assert not engine.has_recompute_function("b")


def test_a_function_knows_that_others_may_wait_for_it():
    engine = RecomputationEngine()
    engine.register_recompute_function("a", is_computing)

    assert engine.recompute("a") is True
    assert not is_computing()


def test_of_two_functions_registered_at_once_the_first_to_arrive_stays():
    class Overtaken(DirectCall):
        """Another thread registers the same layer while the scene is taken."""

        def capture(self, function, modules):
            if not engine.has_recompute_function("a") and function is late:
                engine.register_recompute_function("a", lambda: b"first")

    def late():
        return b"late"

    engine = RecomputationEngine(strategy=Overtaken())

    with pytest.raises(ValueError, match="'a' has a function already"):
        engine.register_recompute_function("a", late, dependencies=["b"])

    assert engine.recompute("a") == b"first"
    assert engine.graph.get_dependencies("a") == ()


def test_a_second_function_for_a_layer_is_refused_and_the_first_stays():
    engine = RecomputationEngine()
    engine.register_recompute_function("a", lambda: b"first")

    with pytest.raises(ValueError, match="'a' has a function already"):
        engine.register_recompute_function("a", lambda: b"second")

    assert engine.recompute("a") == b"first"


def test_recompute_gives_what_the_function_gives_every_time_anew():
    engine = RecomputationEngine()
    engine.register_recompute_function("a", lambda: np.ones(3))

    first, second = engine.recompute("a"), engine.recompute("a")

    assert first.tolist() == [1, 1, 1]
    assert first is not second


def test_an_unregistered_layer_is_a_key_error():
    with pytest.raises(LayerNotFound, match="no function for layer 'a'") as caught:
        RecomputationEngine().recompute("a")

    assert isinstance(caught.value, KeyError)


@pytest.mark.parametrize("blank", ["", " ", None], ids=repr)
def test_blank_ids_are_refused_everywhere(blank):
    engine = RecomputationEngine()

    for call in (
        lambda: engine.register_recompute_function(blank, lambda: b"x"),
        lambda: engine.register_recompute_function("a", lambda: b"x", [blank]),
        lambda: engine.unregister_recompute_function(blank),
        lambda: engine.recompute(blank),
        lambda: engine.recompute_multiple([blank]),
        lambda: engine.has_recompute_function(blank),
    ):
        with pytest.raises(ValueError, match="expected a string that is not blank"):
            call()


@pytest.mark.parametrize("function", [None, 3], ids=repr)
def test_what_cannot_be_called_is_no_function(function):
    with pytest.raises(ValueError, match="expected a callable"):
        RecomputationEngine().register_recompute_function("a", function)


def test_a_failing_function_gives_an_error_with_layer_and_cause_and_the_next_call_works():
    engine = RecomputationEngine()
    answers = [OSError("gone"), b"x"]

    def flaky():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    engine.register_recompute_function("a", flaky)

    with pytest.raises(RecomputationException, match="'a' failed: OSError: gone") as caught:
        engine.recompute("a")

    assert isinstance(caught.value, RuntimeError)
    assert caught.value.layer_id == "a"
    assert isinstance(caught.value.inner_exception, OSError)
    assert caught.value.__cause__ is caught.value.inner_exception
    assert engine.recompute("a") == b"x"


def test_a_function_that_returns_none_is_an_error_and_the_next_call_works():
    engine = RecomputationEngine()
    answers = [None, b"x"]
    engine.register_recompute_function("a", lambda: answers.pop(0))

    with pytest.raises(RecomputationException, match="'a' returned None, expected an activation") as caught:
        engine.recompute("a")

    assert caught.value.layer_id == "a"
    assert engine.recompute("a") == b"x"


def test_an_interrupt_is_not_wrapped():
    engine = RecomputationEngine()

    def interrupted():
        raise KeyboardInterrupt

    engine.register_recompute_function("a", interrupted)

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        engine.recompute("a")


def test_stats_count_calls_and_time_in_fractions_of_a_millisecond():
    engine = RecomputationEngine(strategy=DirectCall())
    engine.register_recompute_function("slow", lambda: time.sleep(0.02) or b"x")
    engine.register_recompute_function("quick", lambda: b"x")
    engine.register_recompute_function("never", lambda: b"x")

    for layer in ("slow", "slow", "quick"):
        engine.recompute(layer)

    stats = engine.get_stats()
    slow, quick, never = (stats.layer_stats[layer] for layer in ("slow", "quick", "never"))
    assert (slow.call_count, quick.call_count, never.call_count) == (2, 1, 0)
    assert slow.total_computation_time_ms >= 40
    assert slow.average_computation_time_ms == slow.total_computation_time_ms / 2
    assert quick.total_computation_time_ms > 0
    assert not float(quick.total_computation_time_ms).is_integer()
    assert (never.average_computation_time_ms, never.last_called_at) == (0.0, None)
    assert slow.last_called_at <= quick.last_called_at <= stats.timestamp
    assert stats.total_recomputations == 3
    assert stats.total_recomputation_time_ms == pytest.approx(
        slow.total_computation_time_ms + quick.total_computation_time_ms
    )
    assert stats.average_recomputation_time_ms == pytest.approx(stats.total_recomputation_time_ms / 3)
    assert stats.registered_layer_count == 3


def test_failures_are_counted_apart_with_their_time():
    engine = RecomputationEngine()
    engine.register_recompute_function("a", lambda: time.sleep(0.002))

    for _ in range(2):
        with pytest.raises(RecomputationException, match="returned None"):
            engine.recompute("a")

    stats = engine.get_stats()
    assert (stats.total_failures, stats.total_recomputations) == (2, 0)
    assert stats.total_failure_time_ms >= 4
    assert stats.layer_stats["a"].failure_count == 2
    assert stats.layer_stats["a"].total_failure_time_ms == pytest.approx(stats.total_failure_time_ms)
    assert stats.average_recomputation_time_ms == 0.0


def test_a_new_engine_has_zero_of_everything():
    stats = RecomputationEngine().get_stats()

    assert stats == RecomputationStats(timestamp=stats.timestamp)


def test_layer_stats_of_nobody_are_none():
    engine = RecomputationEngine()
    engine.register_recompute_function("a", lambda: b"x")

    assert engine.get_layer_stats("a").layer_id == "a"
    assert engine.get_layer_stats("b") is None
    assert engine.get_layer_stats("") is None


def test_listeners_hear_of_runs_and_failures():
    engine = RecomputationEngine()
    heard = []
    engine.recomputed.subscribe(lambda event: heard.append(("ok", event)))
    engine.recomputation_failed.subscribe(lambda event: heard.append(("failed", event)))
    answers = [b"x", None]
    engine.register_recompute_function("a", lambda: answers.pop(0))

    engine.recompute("a")
    with pytest.raises(RecomputationException, match="returned None"):
        engine.recompute("a")

    assert [(kind, event.layer_id, type(event.error).__name__) for kind, event in heard] == [
        ("ok", "a", "NoneType"),
        ("failed", "a", "RecomputationException"),
    ]
    assert all(event.milliseconds > 0 for _, event in heard)


def test_a_run_that_clear_overtakes_ends_normally_uncounted():
    engine = RecomputationEngine()
    engine.register_recompute_function("a", lambda: engine.clear() or b"x")

    assert engine.recompute("a") == b"x"
    assert not engine.has_recompute_function("a")
    assert engine.get_stats().total_recomputations == 0


def test_clear_forgets_functions_dependencies_and_statistics():
    engine, _ = recording_engine("ab", a=["b"], b=["a"])
    engine.recompute("a")

    engine.clear()

    assert engine.get_stats().registered_layer_count == 0
    assert engine.get_stats().total_recomputations == 0
    assert not engine.graph.has_cycle()
    engine.register_recompute_function("a", lambda: b"again")
    assert engine.recompute("a") == b"again"


def test_a_layer_can_be_unregistered_and_registered_anew():
    engine, _ = recording_engine("a")

    assert engine.unregister_recompute_function("a") is True
    assert engine.unregister_recompute_function("a") is False
    engine.register_recompute_function("a", lambda: b"new")

    assert engine.recompute("a") == b"new"


def test_engines_know_nothing_of_each_other():
    left, right = RecomputationEngine(), RecomputationEngine()
    left.register_recompute_function("a", lambda: b"left")
    right.register_recompute_function("a", lambda: b"right")

    assert (left.recompute("a"), right.recompute("a")) == (b"left", b"right")
    left.close()
    assert right.recompute("a") == b"right"


@pytest.mark.parametrize("end", ["close", "dispose"])
def test_closing_twice_is_harmless_and_every_use_afterwards_is_refused(end):
    engine = RecomputationEngine()
    getattr(engine, end)()
    getattr(engine, end)()

    for call in (
        lambda: engine.register_recompute_function("a", lambda: b"x"),
        lambda: engine.unregister_recompute_function("a"),
        lambda: engine.has_recompute_function("a"),
        lambda: engine.recompute("a"),
        lambda: engine.recompute_multiple(["a"]),
        lambda: engine.recompute_multiple([]),
        lambda: engine.get_stats(),
        lambda: engine.get_layer_stats("a"),
        lambda: engine.clear(),
    ):
        with pytest.raises(ClosedError, match="recomputation engine: it is closed") as caught:
            call()
        assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize("end", ["clear", "close"])
def test_functions_and_what_they_hold_are_released(end):
    engine = RecomputationEngine()
    array = np.ones(3)
    watch = weakref.ref(array)
    engine.register_recompute_function("a", lambda array=array: array * 2)
    engine.recompute("a")
    del array

    getattr(engine, end)()
    gc.collect()

    assert watch() is None


def test_a_strategy_of_ones_own_decides_how_functions_run():
    class Twice:
        def capture(self, function, modules):
            return "remembered"

        def run(self, function, captured):
            return (function(), function(), captured)

    engine = RecomputationEngine(strategy=Twice())
    engine.register_recompute_function("a", lambda: 1)

    assert engine.recompute("a") == (1, 1, "remembered")
    assert isinstance(Twice(), RecomputationStrategy)


def test_a_large_activation_passes_through_without_a_copy():
    engine = RecomputationEngine()
    large = np.zeros(64 << 20, np.uint8)
    engine.register_recompute_function("a", lambda: large)

    assert engine.recompute("a") is large


def test_rapid_repeats_are_all_counted():
    engine = RecomputationEngine(strategy=DirectCall())
    engine.register_recompute_function("a", lambda: b"x")

    for _ in range(10_000):
        engine.recompute("a")

    assert engine.get_layer_stats("a").call_count == 10_000


def test_a_hundred_thousand_functions_are_registered():
    engine = RecomputationEngine(strategy=DirectCall())
    for index in range(100_000):
        engine.register_recompute_function(f"layer{index}", lambda: b"x")

    assert engine.get_stats().registered_layer_count == 100_000
    assert engine.recompute("layer99999") == b"x"


def test_functions_registered_with_no_number_drawn_between_share_one_random_state():
    """A state is 13 KB; layers that draw nothing must not keep one each."""
    strategy = ExactReplay()
    before = [strategy.capture(bytes, ()) for _ in range(100)]
    random.random()
    after = strategy.capture(bytes, ())

    assert len({id(scene.random) for scene in before}) == 1
    assert after.random is not before[0].random


@pytest.mark.parametrize("kind", ["engine", "async engine", "manager", "manager with a function"])
def test_a_recompute_function_knows_that_it_is_a_second_run(kind):
    """A function with side effects asks, as the hooks of a planned model do."""
    with AsyncRecomputationEngine() as engine, CheckpointManager(engine=engine) as manager:
        engine.register_recompute_function("a", lambda: [is_recomputing()])
        ask = {
            "engine": lambda: engine.recompute("a"),
            "async engine": lambda: engine.recompute_async("a").result(),
            "manager": lambda: manager.retrieve_or_recompute("a"),
            "manager with a function": lambda: manager.retrieve_or_recompute("b", lambda: [is_recomputing()]),
        }

        assert ask[kind]() == [True]
        assert not is_recomputing()
