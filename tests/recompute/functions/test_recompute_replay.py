"""Exact replay: generators, autocast, grad mode, train flags and buffers, as they were at registration."""

import functools
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from model_checkpoint.recompute import AsyncRecomputationEngine, CheckpointManager, DirectCall, RecomputationEngine


def draw():
    return random.random(), np.random.rand(), torch.rand(2).tolist(), random.gauss(0, 1), np.random.randn()


def test_every_generator_is_replayed_and_left_as_it_was():
    engine = RecomputationEngine()
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    engine.register_recompute_function("a", draw)
    original = draw()
    world = random.getstate(), torch.get_rng_state()

    again, once_more = engine.recompute("a"), engine.recompute("a")

    assert again == original
    assert once_more == original
    assert random.getstate() == world[0]
    assert torch.equal(torch.get_rng_state(), world[1])
    assert draw() != original


def test_generators_are_left_as_they_were_when_the_function_fails():
    engine = RecomputationEngine()

    def broken():
        random.random()
        raise OSError("gone")

    engine.register_recompute_function("a", broken)
    random.random()
    world = random.getstate()

    with pytest.raises(RuntimeError, match="gone"):
        engine.recompute("a")

    assert random.getstate() == world


def test_dropout_is_recomputed_bit_for_bit():
    engine = RecomputationEngine()
    layer, x = torch.nn.Dropout(0.5), torch.ones(1000)
    engine.register_recompute_function("drop", lambda: layer(x))
    original = layer(x)

    assert torch.equal(engine.recompute("drop"), original)
    assert not torch.equal(layer(x), original)


def test_nested_recomputations_each_have_their_own_numbers():
    engine = RecomputationEngine()
    torch.manual_seed(0)
    engine.register_recompute_function("inner", lambda: torch.rand(3))
    inner = torch.rand(3)
    engine.register_recompute_function(
        "outer", lambda: torch.cat([torch.rand(2), engine.recompute("inner"), torch.rand(2)])
    )
    outer = torch.cat([torch.rand(2), inner, torch.rand(2)])

    assert torch.equal(engine.recompute("outer"), outer)


@pytest.mark.parametrize("grad", [True, False])
def test_grad_mode_is_replayed(grad):
    engine = RecomputationEngine()
    x = torch.ones(2, requires_grad=True)
    with torch.set_grad_enabled(grad):
        engine.register_recompute_function("a", lambda: x * 2)

    with torch.set_grad_enabled(not grad):
        assert engine.recompute("a").requires_grad is grad
        assert torch.is_grad_enabled() is not grad


def test_inference_mode_is_replayed_both_ways():
    engine = RecomputationEngine()
    x = torch.ones(2)
    engine.register_recompute_function("plain", lambda: x * 2)
    with torch.inference_mode():
        engine.register_recompute_function("inference", lambda: x * 2)
        assert not engine.recompute("plain").is_inference()

    assert engine.recompute("inference").is_inference()
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()


def test_autocast_is_replayed_with_dtype_and_cache_flag():
    engine = RecomputationEngine()
    a, b = torch.ones(4, 4), torch.ones(4, 4)
    seen = []

    def product():
        seen.append(torch.is_autocast_cache_enabled())
        return a @ b

    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        engine.register_recompute_function("half", product)
    engine.register_recompute_function("full", product)

    assert engine.recompute("half").dtype is torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert engine.recompute("full").dtype is torch.float32
        assert (a @ b).dtype is torch.bfloat16
    assert seen == [False, True]
    assert not torch.is_autocast_enabled("cpu")


HOLDERS = {
    "closure": lambda layer, x: lambda: layer(x),
    "module in a partial": lambda layer, x: functools.partial(layer, x),
    "argument of a partial": lambda layer, x: functools.partial(lambda module, value: module(value), layer, x),
    "bound method in a partial": lambda layer, x: functools.partial(layer.forward, x),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_train_flags_of_modules_a_function_holds_are_replayed(hold):
    engine = RecomputationEngine()
    layer, x = torch.nn.Sequential(torch.nn.Dropout(0.5)), torch.ones(100)
    engine.register_recompute_function("a", hold(layer, x))
    original = layer(x)
    layer.eval()

    again = engine.recompute("a")

    assert torch.equal(again, original)
    assert not layer.training
    assert not layer[0].training


def test_train_flags_of_modules_named_are_replayed():
    engine = RecomputationEngine()
    hidden = {"layer": torch.nn.Dropout(0.5)}
    engine.register_recompute_function("a", lambda: hidden["layer"](torch.ones(100)), modules=[hidden["layer"]])
    original = hidden["layer"](torch.ones(100))
    hidden["layer"].eval()

    assert torch.equal(engine.recompute("a"), original)


def test_eval_mode_is_replayed_for_a_model_back_in_training():
    engine = RecomputationEngine()
    layer, x = torch.nn.Dropout(0.5).eval(), torch.ones(10)
    engine.register_recompute_function("a", lambda: layer(x))
    layer.train()

    assert torch.equal(engine.recompute("a"), x)
    assert layer.training


def test_batch_norm_statistics_are_not_counted_twice():
    engine = RecomputationEngine()
    layer, x = torch.nn.BatchNorm1d(3), torch.randn(8, 3)
    engine.register_recompute_function("a", lambda: layer(x))
    original = layer(x)
    before = {name: buffer.clone() for name, buffer in layer.named_buffers()}

    again = engine.recompute("a")

    assert torch.equal(again, original)
    assert all(torch.equal(buffer, before[name]) for name, buffer in layer.named_buffers())
    again.sum().backward()


def test_threads_that_draw_at_the_same_time_still_get_their_own_numbers():
    """One set of generators serves the process: runs that disturbed each other are repeated alone."""
    engine = RecomputationEngine()
    originals = {}

    def draws():
        values = [random.random()]
        time.sleep(0.002)
        return [*values, torch.rand(1).item(), np.random.rand()]

    for index in range(12):
        engine.register_recompute_function(f"layer{index}", draws)
        originals[f"layer{index}"] = draws()
    world = random.getstate()

    with ThreadPoolExecutor(6) as pool:
        for _ in range(3):
            results = dict(zip(originals, pool.map(engine.recompute, originals), strict=True))
            assert results == originals

    assert random.getstate() == world


def test_workers_of_an_async_engine_get_their_own_numbers_too():
    with AsyncRecomputationEngine(4) as engine:
        originals = {}
        for index in range(12):
            engine.register_recompute_function(f"layer{index}", lambda: torch.rand(4))
            originals[f"layer{index}"] = torch.rand(4)

        results = engine.recompute_multiple(originals)

        assert all(torch.equal(results[layer], original) for layer, original in originals.items())


def test_threads_with_opposite_train_flags_on_one_module_each_get_theirs():
    engine = RecomputationEngine()
    layer, x = torch.nn.Dropout(0.5), torch.ones(64)
    engine.register_recompute_function("train", lambda: (time.sleep(0.002), layer(x))[1])
    original = layer(x)
    layer.eval()
    engine.register_recompute_function("eval", lambda: (time.sleep(0.002), layer(x))[1])

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(engine.recompute, ["train", "eval"] * 8))

    assert all(torch.equal(result, original) for result in results[::2])
    assert all(torch.equal(result, x) for result in results[1::2])
    assert not layer.training


def test_random_layers_that_wait_for_each_other_in_a_manager_finish_and_are_exact():
    """A run that waits steps off the generators, else the one it waits for could never have them to itself."""
    manager = CheckpointManager()
    originals = {}

    def layer(index):
        below = manager.retrieve_or_recompute(f"layer{index - 1}") if index else torch.zeros(2)
        return below + torch.rand(2)

    torch.manual_seed(5)
    for index in range(8):
        manager.engine.register_recompute_function(f"layer{index}", functools.partial(layer, index))
        originals[index] = torch.rand(2) + (originals[index - 1] if index else 0)

    gate = threading.Barrier(8)

    def ask(index):
        gate.wait()
        return manager.retrieve_or_recompute(f"layer{index}")

    for _ in range(5):
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(ask, range(8)))
        assert all(torch.equal(result, originals[index]) for index, result in enumerate(results))
        manager.clear_checkpoints()


def test_a_direct_call_replays_nothing():
    engine = RecomputationEngine(strategy=DirectCall())
    engine.register_recompute_function("a", random.random)
    random.seed(4)
    first = random.random()
    random.seed(4)

    assert engine.recompute("a") == first


def test_a_child_forked_while_another_thread_replays_does_not_wait_for_it():
    """The other thread does not exist there, so it never leaves."""
    module, begun, gate = torch.nn.Dropout(0.5), threading.Event(), threading.Event()
    engine = RecomputationEngine()

    def slow():
        begun.set()
        gate.wait(60)
        return torch.ones(1)

    engine.register_recompute_function("slow", slow, modules=[module.train()])
    engine.register_recompute_function("other", lambda: [module.training], modules=[module.eval()])
    thread = threading.Thread(target=engine.recompute, args=("slow",))
    thread.start()
    assert begun.wait(60)

    child = os.fork()
    if child == 0:
        signal.alarm(60)  # the end of a child that hangs
        os._exit(0 if engine.recompute("other") == [False] else 1)
    gate.set()
    thread.join()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
