"""auto_checkpoint beside the rest of a training program: mixed precision in any order, a sample that is let go."""

import copy
import gc
import weakref

import pytest
import torch
from tests.recompute.auto.auto_models import mlp, transformer

from model_checkpoint.precision import MixedPrecisionOptimizer
from model_checkpoint.recompute import SampleGone, auto_checkpoint


def mixed(model):
    return MixedPrecisionOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2), model=model)


def trained(model, optimizer, x):
    """Losses and parameters of a few steps from fixed generators."""
    torch.manual_seed(3)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(x).float().pow(2).mean()
        optimizer.backward(loss)
        optimizer.step()
        losses.append(loss.detach().clone())
    return losses + [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("executor", ["native", "torch"])
@pytest.mark.parametrize("first", ["optimizer", "plan"])
def test_mixed_precision_and_a_plan_go_together_whatever_was_first(first, executor):
    torch.manual_seed(0)
    model, x = transformer(32, 4), torch.randn(4, 16, 32)
    twin = copy.deepcopy(model)
    expected = trained(twin, mixed(twin), x)

    if first == "optimizer":
        optimizer = mixed(model)
        auto_checkpoint(model, 0.6, x, executor=executor)
    else:
        auto_checkpoint(model, 0.6, x, executor=executor)
        optimizer = mixed(model)

    assert set(model.plan.fates()) != {"kept"}
    got = trained(model, optimizer, x)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_a_plan_does_not_keep_its_sample_alive(executor):
    model, sample, labels = mlp(64, 4), torch.randn(256, 64), torch.randn(256, 64)
    auto_checkpoint(
        model, 0.7, (sample,), loss=lambda output, labels=labels: (output - labels).pow(2).mean(), executor=executor
    )
    watches = [weakref.ref(sample), weakref.ref(labels)]

    del sample, labels
    gc.collect()

    assert [watch() for watch in watches] == [None, None]


def test_a_profile_measures_with_its_sample_while_that_lives_and_with_another_like_it_after():
    model, sample = mlp(64, 4), torch.randn(256, 64)
    auto_checkpoint(model, 1.0, sample)
    profile, floor = model.plan.profile, model.plan.floor_bytes
    auto_checkpoint(model, floor, profile=profile)
    assert model.plan.peak_bytes <= floor

    del sample

    with pytest.raises(SampleGone, match=r"^profile: its sample is gone.*Pass sample_input="):
        auto_checkpoint(model, 0.7, profile=profile)
    auto_checkpoint(model, 0.7, torch.randn(256, 64), profile=profile)
    assert model.plan.peak_bytes <= model.plan.budget_bytes
    with pytest.raises(ValueError, match=r"^profile: made with a sample of .*\(256, 64\).*got .*\(8, 64\)"):
        auto_checkpoint(model, 0.7, torch.randn(8, 64), profile=profile)
