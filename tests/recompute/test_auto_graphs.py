"""Graphs: kept, walked twice, broken by errors, changed under our feet, freed."""

import copy
import gc
import weakref

import pytest
import torch
from auto_models import (
    assert_same_step,
    every_stage,
    leanest,
    mlp,
    nested,
    runtime_of,
    step,
    transformer,
    whole,
)
from torch import nn

from model_checkpoint.recompute.auto_errors import ValueChanged
from model_checkpoint.recompute.frame import Frame, is_recomputing, local
from model_checkpoint.recompute.schedule import Keep


def test_retain_graph_gives_the_same_gradients_twice():
    torch.manual_seed(0)
    model, x = transformer(16, 4), torch.randn(2, 6, 16)
    twin = copy.deepcopy(model)
    leanest(twin, x)

    def one(model):
        torch.manual_seed(1)
        model.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward(retain_graph=True)
        loss.backward()
        return [p.grad for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(one(twin), one(model), strict=True))


@pytest.mark.parametrize("mode", ["recompute", "drop"])
def test_double_backward_equals_plain(mode):
    torch.manual_seed(0)
    model, x = mlp(8, 5), torch.randn(4, 8)
    twin = copy.deepcopy(model)

    def penalty(model):
        given = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(given).pow(2).sum(), given, create_graph=True)
        model.zero_grad()
        gradient.pow(2).sum().backward()
        return [p.grad if p.grad is not None else torch.zeros(1) for p in model.parameters()]

    expected = penalty(model)
    schedule = nested(5) if mode == "recompute" else tuple(Keep(stage=i, mode="drop") for i in range(5))
    with runtime_of(twin) as runtime:
        runtime.use(schedule)
        got = penalty(twin)

    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_an_input_changed_in_place_before_backward_is_detected():
    model, x = mlp(8, 4), torch.randn(4, 8)
    with runtime_of(model) as runtime:
        runtime.use(whole(4))
        loss = model(x).sum()
        x.add_(1)

        with pytest.raises(ValueChanged, match=r"shape \(4, 8\) was changed in place"):
            loss.backward()


def test_a_parameter_changed_before_backward_is_detected_and_named():
    model, x = mlp(8, 4), torch.randn(4, 8)
    with runtime_of(model) as runtime:
        runtime.use(whole(4))
        loss = model(x).sum()
        with torch.no_grad():
            model[2][0].weight.add_(1)

        with pytest.raises(ValueChanged, match=r"changed in place"):
            loss.backward()


class Fragile(nn.Module):
    """Fails on demand, in the first or in the second run."""

    def __init__(self):
        super().__init__()
        self.linear, self.fail = nn.Linear(8, 8), ""

    def forward(self, x):
        if self.fail == ("again" if is_recomputing() else "first"):
            raise RuntimeError("asked to fail")
        return self.linear(x).tanh()


@pytest.mark.parametrize("when", ["first", "again"])
@pytest.mark.parametrize("prefetch", [False, True])
def test_an_error_leaves_no_state_behind(when, prefetch):
    torch.manual_seed(0)
    model, x = nn.Sequential(*[Fragile() for _ in range(4)]), torch.randn(4, 8)
    expected = step(copy.deepcopy(model), (x,))
    with runtime_of(model, prefetch=prefetch) as runtime:
        runtime.use(every_stage(4))
        model[1].fail = when
        with pytest.raises(RuntimeError, match="asked to fail"):
            step(model, (x,))
        assert local.walk is None
        assert local.recomputing == 0

        model[1].fail = ""
        assert_same_step(step(model, (x,)), expected)


def test_no_hooks_stay_behind_after_an_error():
    model, x = nn.Sequential(*[Fragile() for _ in range(3)]), torch.randn(4, 8)
    with runtime_of(model) as runtime:
        runtime.use(whole(3))
        model[2].fail = "first"
        with pytest.raises(RuntimeError, match="asked to fail"):
            model(x)

        other = torch.randn(3, requires_grad=True)
        assert other.exp().grad_fn._saved_result.shape == (3,)


@pytest.mark.slow
def test_nothing_leaks_over_a_thousand_steps():
    model, x = transformer(8, 4), torch.randn(1, 3, 8)
    with runtime_of(model) as runtime:
        runtime.use(nested(4))
        model(x).sum().backward()
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(1000):
            model(x).sum().backward()
        gc.collect()

        assert len(gc.get_objects()) - before < 200


def test_frames_die_with_the_graph_without_the_garbage_collector():
    model, x = transformer(8, 4), torch.randn(1, 3, 8)
    made = []
    with runtime_of(model) as runtime:
        runtime.use(nested(4))
        gc.disable()
        try:
            output = model(x)
            made = [weakref.ref(o) for o in gc.get_objects() if type(o) is Frame]
            assert made
            output.sum().backward()
            del output
            assert all(reference() is None for reference in made)
        finally:
            gc.enable()
