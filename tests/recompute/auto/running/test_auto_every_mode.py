"""What must hold in every mode: graphs walked twice, gradients of gradients, errors that leave nothing behind."""

import copy
import gc
import threading

import pytest
import torch
from tests.recompute.auto.auto_models import (
    EVERY_MODE,
    FAMILIES,
    assert_same_step,
    mlp,
    runtime_in,
    seeded,
    spill_files,
    step,
    transformer,
    wait_until,
)
from torch import nn

from model_checkpoint.recompute.auto.running.walking import local
from model_checkpoint.recompute.common.recomputing import is_recomputing


def walked(model, inputs, times):
    """Gradients after each of several walks through one graph."""
    torch.manual_seed(1)
    model.zero_grad()
    loss, seen = model(*inputs).pow(2).mean(), []
    for left in reversed(range(times)):
        loss.backward(retain_graph=left > 0)
        seen.append([p.grad.clone() for p in model.parameters()])
    return seen


def same(got, expected):
    return all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", EVERY_MODE)
def test_a_retained_graph_gives_the_same_gradients_in_every_walk(mode, family, tmp_path):
    model, inputs = seeded(FAMILIES[family])
    twin = copy.deepcopy(model)
    with runtime_in(twin, mode, tmp_path):
        got = walked(twin, inputs, times=3)

    assert all(same(a, b) for a, b in zip(got, walked(model, inputs, times=3), strict=True))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_a_graph_that_was_freed_is_refused_as_in_plain_training(mode, tmp_path):
    model, x = mlp(8, 4), torch.randn(4, 8)
    with runtime_in(model, mode, tmp_path):
        loss = model(x).sum()
        loss.backward()

        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()


def penalty(model, inputs):
    """Gradients of the size of a gradient."""
    torch.manual_seed(1)
    model.zero_grad()
    given = inputs[0].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(given, *inputs[1:]).pow(2).sum(), given, create_graph=True)
    (gradient.pow(2).sum() + gradient.sin().sum()).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("family", ["mlp", "cnn", "residual"])
@pytest.mark.parametrize("mode", EVERY_MODE)
def test_double_backward_equals_plain(mode, family, tmp_path):
    model, inputs = seeded(FAMILIES[family])
    twin = copy.deepcopy(model)
    with runtime_in(twin, mode, tmp_path):
        got = penalty(twin, inputs)
    expected = penalty(model, inputs)

    assert same(got, expected)
    assert any(gradient.any() for gradient in expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_a_double_backward_that_torch_refuses_is_refused_in_its_words_and_leaves_nothing(mode, tmp_path):
    """Fused attention has no second derivative, planned or not."""
    torch.manual_seed(0)
    model, x = transformer(8, 4, rate=0.0), torch.randn(1, 3, 8)
    expected = step(copy.deepcopy(model), (x,))
    with runtime_in(model, mode, tmp_path):
        with pytest.raises(RuntimeError, match="derivative for aten::_scaled_dot_product_flash_attention_for_cpu_back"):
            penalty(model, (x,))
        gc.collect()

        assert wait_until(lambda: not spill_files(tmp_path))
        assert_same_step(step(model, (x,)), expected)


class Fails(nn.Module):
    """Raises on demand: in forward, when it runs again, or in backward."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.when = nn.Linear(8, 8), nn.LayerNorm(8), ""

    def forward(self, x):
        if self.when == ("again" if is_recomputing() else "forward"):
            raise RuntimeError("asked to fail")
        result = self.norm(self.linear(x).tanh())
        if self.when == "backward" and not is_recomputing():
            result.register_hook(self._raise)
        return result.tanh()

    def _raise(self, gradient):
        raise RuntimeError("asked to fail")


def failing():
    torch.manual_seed(0)
    return nn.Sequential(*[Fails() for _ in range(5)]), torch.randn(4, 8)


def fail(model, x, when, position=2):
    """Run a step that fails."""
    model[position].when = when
    with pytest.raises(RuntimeError, match="asked to fail"):
        step(model, (x,))
    model[position].when = ""


def again_in(mode):
    """The ways a step can fail in a mode: only regions run again."""
    return ["forward", "backward", "again"] if mode == "recompute" or "prefetch" in mode else ["forward", "backward"]


CASES = [(mode, when) for mode in EVERY_MODE for when in again_in(mode)]


@pytest.mark.parametrize(("mode", "when"), CASES)
def test_an_error_anywhere_leaves_no_state_behind(mode, when, tmp_path):
    model, x = failing()
    expected, threads = step(copy.deepcopy(model), (x,)), threading.active_count()
    grad, generator = torch.is_grad_enabled(), torch.get_rng_state()
    with runtime_in(model, mode, tmp_path):
        for position in range(5):
            fail(model, x, when, position)

            assert (local.walk, is_recomputing()) == (None, False)
            assert torch.is_grad_enabled() == grad
            assert torch.equal(torch.get_rng_state(), generator)
            gc.collect()
            assert wait_until(lambda: not spill_files(tmp_path))  # a worker ends what it has begun
            other = torch.ones(3, requires_grad=True)
            assert torch.is_tensor(other.exp().grad_fn._saved_result)  # no hook is left that would pack it
            assert_same_step(step(model, (x,)), expected)

    assert threading.active_count() == threads
    assert all("_call_impl" not in module.__dict__ for module in model.modules())
