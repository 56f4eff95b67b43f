"""Graphs: kept, changed under our feet, freed."""

import copy
import gc
import weakref

import pytest
import torch
from tests.recompute.auto.auto_models import (
    leanest,
    mlp,
    nested,
    runtime_of,
    transformer,
    whole,
)

from model_checkpoint.recompute.auto.common.errors import ValueChanged
from model_checkpoint.recompute.auto.running.region_frame import RegionFrame


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


@pytest.fixture
def forward():
    """A model that is one region, what it was called with, and the loss, before backward."""
    model, x = mlp(8, 4), torch.randn(4, 8)
    with runtime_of(model) as runtime:
        runtime.use(whole(4))
        yield model, x, model(x).sum()


def test_an_input_changed_in_place_before_backward_is_detected(forward):
    _, x, loss = forward
    x.add_(1)

    with pytest.raises(ValueChanged, match=r"shape \(4, 8\) was changed in place"):
        loss.backward()


def test_a_parameter_changed_before_backward_is_detected_and_named(forward):
    model, _, loss = forward
    with torch.no_grad():
        model[2][0].weight.add_(1)

    with pytest.raises(ValueChanged, match=r"^2: parameter 0 \(shape \(8, 8\)\) was changed in place"):
        loss.backward()


def test_what_a_partial_backward_left_is_not_used_by_the_next(forward):
    """It may be out of date: the second walk looks at the parameters anew."""
    model, _, loss = forward
    torch.autograd.grad(loss, model[3][2].weight, retain_graph=True)
    with torch.no_grad():
        model[0][0].weight.add_(1)

    with pytest.raises(ValueChanged, match=r"^0: parameter 0 \(shape \(8, 8\)\) was changed in place"):
        loss.backward()


def test_frames_die_with_the_graph_without_the_garbage_collector():
    model, x = transformer(8, 4), torch.randn(1, 3, 8)
    made = []
    with runtime_of(model) as runtime:
        runtime.use(nested(4))
        gc.disable()
        try:
            output = model(x)
            made = [weakref.ref(o) for o in gc.get_objects() if type(o) is RegionFrame]
            assert made
            output.sum().backward()
            del output
            assert all(reference() is None for reference in made)
        finally:
            gc.enable()
