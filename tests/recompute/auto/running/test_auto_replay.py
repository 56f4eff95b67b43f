"""Second runs find the surroundings of the first: buffers, generators, autocast, flags, hooks."""

import copy
import random

import numpy as np
import pytest
import torch
from tests.recompute.auto.auto_models import (
    assert_same_step,
    autocast_gradients,
    cnn,
    every_stage,
    leanest,
    mlp,
    nested,
    runtime_of,
    runtime_of_plan,
    step,
    transformer,
    whole,
)
from torch import nn

from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.common.recomputing import is_recomputing


def test_batch_norm_statistics_move_once_per_step():
    torch.manual_seed(0)
    model, x = cnn(4, 6), torch.randn(2, 3, 8, 8)
    leanest(model, x)
    step(model, (x,))

    assert model[0][1].num_batches_tracked == 1


def test_spectral_norm_is_replayed_from_its_old_vectors():
    torch.manual_seed(0)
    layers = [nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)) for _ in range(4)]
    model, x = nn.Sequential(*[nn.Sequential(layer, nn.Tanh()) for layer in layers]), torch.randn(4, 8)
    twin = copy.deepcopy(model)
    leanest(twin, x)
    for _ in range(3):
        assert_same_step(step(twin, (x,)), step(model, (x,)))


def test_a_stage_that_writes_into_its_input_gets_a_copy():
    torch.manual_seed(0)

    def build():
        torch.manual_seed(0)
        return nn.Sequential(*[m for _ in range(5) for m in (nn.Linear(8, 8), nn.ReLU(inplace=True))])

    model, twin, x = build(), build(), torch.randn(4, 8)
    auto_checkpoint(twin, 1.0, x)
    assert any(stage.writes for stage in twin.plan.stages)
    expected = step(model, (x,))
    with runtime_of_plan(twin) as runtime:
        for schedule in (every_stage(10), whole(10), nested(10)):
            runtime.use(schedule)
            assert_same_step(step(twin, (x,)), expected)


class Lucky(nn.Module):
    """Draws from Python's and NumPy's generators."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x).tanh() * (random.random() + float(np.random.rand()))


def test_python_and_numpy_generators_are_replayed():
    model, x = nn.Sequential(*[Lucky() for _ in range(4)]), torch.randn(2048, 8)  # states cost 10 kB each
    twin = copy.deepcopy(model)
    leanest(twin, x, determinism="hash")

    def seeded(model):
        random.seed(5)
        np.random.seed(5)
        return (*step(model, (x,)), random.getstate(), np.random.get_state()[1].tobytes())

    got, expected = seeded(twin), seeded(model)

    assert_same_step(got[:4], expected[:4])
    assert got[4:] == expected[4:]


def test_autocast_is_replayed_when_backward_runs_outside_of_it():
    torch.manual_seed(0)
    model, x = transformer(16, 4), torch.randn(2, 6, 16)
    twin = copy.deepcopy(model)

    leanest(twin, x, determinism="hash")

    assert all(
        torch.equal(a, b) for a, b in zip(autocast_gradients(twin, x), autocast_gradients(model, x), strict=True)
    )


def test_backward_inside_autocast_recomputes_plain_layers_plainly():
    torch.manual_seed(0)
    model, x = mlp(16, 6), torch.randn(4, 16)
    twin = copy.deepcopy(model)
    leanest(twin, x, determinism="hash")

    for each in (model, twin):
        loss = each(x).pow(2).mean()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss.backward()

    assert all(torch.equal(a.grad, b.grad) for a, b in zip(twin.parameters(), model.parameters(), strict=True))


def test_train_flags_are_those_of_the_forward_pass():
    torch.manual_seed(0)
    model, x = transformer(16, 4, rate=0.5), torch.randn(2, 6, 16)
    twin = copy.deepcopy(model)
    leanest(twin, x)

    def one(model):
        torch.manual_seed(1)
        model.train()
        loss = model(x).pow(2).mean()
        model.eval()
        loss.backward()
        return [p.grad for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(one(twin), one(model), strict=True))
    assert not any(m.training for m in twin.modules())


def test_forward_hooks_run_again_and_can_tell():
    model, x = mlp(8, 6), torch.randn(4, 8)
    seen = []
    for position in (0, 5):  # the last stage of a region is not cut short either
        model[position].register_forward_hook(lambda *_, p=position: seen.append((p, is_recomputing())))

    with runtime_of(model) as runtime:
        runtime.use(whole(6))
        step(model, (x,))

    assert seen == [(0, False), (5, False), (0, True), (5, True)]
    assert not is_recomputing()


def autocast_now():
    return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("prefetch", [False, True])
def test_autocast_is_replayed_with_its_dtype_and_cache_flag(prefetch, dtype, cache):
    """Backward runs outside of it; the worker thread of prefetch has never been in it."""
    model, x, seen = mlp(16, 4), torch.randn(4, 16), []
    for stage in model:
        stage.register_forward_hook(lambda *_: seen.append((is_recomputing(), *autocast_now())))
    before = autocast_now()
    with runtime_of(model, prefetch=prefetch) as runtime:
        runtime.use(every_stage(4) if prefetch else whole(4))
        with torch.autocast("cpu", dtype=dtype, cache_enabled=cache):
            loss = model(x).float().sum()
        loss.backward()

    assert seen == [(again, True, dtype, cache) for again in (False, True) for _ in range(4)]
    assert autocast_now() == before


@pytest.mark.parametrize("cache", [False, True])
def test_what_ran_outside_autocast_runs_outside_again_with_backward_inside(cache):
    model, x, seen = mlp(16, 4), torch.randn(4, 16), []
    model[1].register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    with runtime_of(model) as runtime:
        runtime.use(nested(4))
        loss = model(x).sum()
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cache):
            within = autocast_now()
            loss.backward()
            assert autocast_now() == within

    assert seen == [False, False, False]
