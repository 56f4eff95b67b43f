"""The five strategies and their factory."""

import threading

import numpy as np
import pytest

from model_checkpoint.recompute import (
    CheckpointConfig,
    CheckpointStrategy,
    CheckpointStrategyProtocol,
    MemoryAwareStrategy,
    MemoryTracker,
    create_interval,
    create_memory_aware,
    create_selective,
    create_size_based,
    create_smart,
    create_strategy,
)
from model_checkpoint.recompute.activations.strategies import machine_memory, process_memory

SETTINGS = {"checkpoint_layers": ("keep",), "exclude_layers": ("never",), "min_activation_size_bytes": 10}


def answers(strategy, count, size=1):
    return [strategy.should_checkpoint(f"layer{i}", bytes(size), i) for i in range(count)]


@pytest.mark.parametrize("kind", CheckpointStrategy)
def test_the_factory_makes_what_the_config_names(kind):
    strategy = create_strategy(CheckpointConfig(strategy=kind, **SETTINGS))

    assert strategy.name == kind.value
    assert isinstance(strategy, CheckpointStrategyProtocol)


def test_the_factory_refuses_what_does_not_hold():
    with pytest.raises(ValueError, match="strategy is 'other'"):
        create_strategy(CheckpointConfig(strategy="other"))


@pytest.mark.parametrize("kind", CheckpointStrategy)
def test_no_strategy_keeps_an_excluded_layer(kind):
    strategy = create_strategy(CheckpointConfig(strategy=kind, **SETTINGS))

    assert not any(strategy.should_checkpoint("never", bytes(100), index) for index in range(20))


@pytest.mark.parametrize("kind", CheckpointStrategy)
def test_every_strategy_refuses_what_makes_no_sense(kind):
    strategy = create_strategy(CheckpointConfig(strategy=kind, **SETTINGS))

    with pytest.raises(ValueError, match="not blank"):
        strategy.should_checkpoint(" ", b"x", 0)
    with pytest.raises(ValueError, match="activation of 'a' is None"):
        strategy.should_checkpoint("a", None, 0)
    with pytest.raises(ValueError, match="has index -1"):
        strategy.should_checkpoint("a", b"x", -1)
    strategy.reset()


def test_interval_keeps_every_nth():
    assert answers(create_interval(3), 7) == [True, False, False, True, False, False, True]
    assert all(answers(create_interval(1), 5))
    with pytest.raises(ValueError, match="the interval is 0"):
        create_interval(0)


def test_selective_keeps_what_is_listed():
    strategy = create_selective(["layer1", "layer3"], exclude=["layer3"])

    assert answers(strategy, 4) == [False, True, False, False]


def test_size_based_keeps_what_is_large_enough():
    strategy = create_size_based(80)

    assert strategy.should_checkpoint("a", np.zeros(10), 0)
    assert not strategy.should_checkpoint("a", np.zeros(10, np.float32), 0)
    with pytest.raises(ValueError, match="the smallest size is 0"):
        create_size_based(0)
    assert create_size_based(1).should_checkpoint("a", b"x", 0)


def test_memory_aware_checkpoints_more_often_above_the_limit_and_less_often_well_below_it():
    usage, clock = [50], [0.0]
    strategy = MemoryAwareStrategy(lambda: usage[0], lambda: 100, clock=lambda: clock[0])

    def after(used):
        usage[0], clock[0] = used, clock[0] + 10
        strategy.should_checkpoint("a", b"x", 0)
        return strategy.current_interval

    assert [after(79), after(0), after(80), after(90), after(100), after(101)] == [3, 4, 4, 4, 4, 3]
    assert [after(0) for _ in range(12)][-1] == 10
    assert [after(200) for _ in range(12)][-1] == 1
    strategy.reset()
    assert strategy.current_interval == 2


def test_memory_aware_moves_at_most_once_in_ten_seconds():
    clock = [0.0]
    strategy = MemoryAwareStrategy(lambda: 0, lambda: 100, clock=lambda: clock[0])

    for moment in (0.0, 1.0, 9.9):
        clock[0] = moment
        strategy.should_checkpoint("a", b"x", 0)
    assert strategy.current_interval == 3
    clock[0] = 10.0
    strategy.should_checkpoint("a", b"x", 0)

    assert strategy.current_interval == 4


def test_memory_aware_follows_its_interval():
    strategy = MemoryAwareStrategy(lambda: 0, lambda: 100)

    assert answers(strategy, 7) == [True, False, False, True, False, False, True]


def test_memory_aware_takes_usage_and_limit_from_the_tracker():
    tracker = MemoryTracker()
    tracker.record_allocation("a", 500)
    strategy = create_memory_aware(0.5, tracker, total_memory=2000)

    answers(strategy, 1)
    assert strategy.current_interval == 3
    strategy.reset()
    tracker.set_memory_limit(400)
    answers(strategy, 1)

    assert strategy.current_interval == 1


def test_memory_aware_without_a_tracker_measures_this_process():
    strategy = create_memory_aware(1.0, total_memory=process_memory() // 2)

    answers(strategy, 1)

    assert strategy.current_interval == 1
    assert 1 << 20 < process_memory() < machine_memory()


@pytest.mark.parametrize("part", [0.0, 1.5])
def test_memory_aware_refuses_a_part_that_is_none(part):
    with pytest.raises(ValueError, match=f"the part of memory is {part}"):
        create_memory_aware(part)


def test_smart_keeps_everything_while_it_learns():
    assert all(answers(create_smart(), 10))


def test_smart_then_keeps_what_is_large_rare_or_late():
    strategy = create_smart()
    for _ in range(3):
        answers(strategy, 20, size=100)

    assert strategy.should_checkpoint("layer1", bytes(1000), 1)
    assert not strategy.should_checkpoint("layer1", bytes(100), 1)
    assert strategy.should_checkpoint("layer18", bytes(100), 18)
    assert not strategy.should_checkpoint("layer10", bytes(100), 10)
    assert strategy.should_checkpoint("new", bytes(100), 1)
    strategy.reset()
    assert strategy.should_checkpoint("layer1", bytes(100), 1)


def test_smart_counts_every_answer_of_many_threads():
    strategy = create_smart()
    threads = [threading.Thread(target=answers, args=(strategy, 200)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert strategy._answers == 16 * 200
    assert set(strategy._seen.values()) == {16}
