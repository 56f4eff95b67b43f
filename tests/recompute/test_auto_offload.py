"""Offload to disk: the same gradients, less memory, files that come and go."""

import copy
import random

import pytest
import torch
from auto_models import (
    FAMILIES,
    assert_same_step,
    mlp,
    random_schedule,
    runtime_of,
    stages_by_hand,
    step,
)

from model_checkpoint.recompute.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.offload import Offloader
from model_checkpoint.recompute.peak import measure_peak
from model_checkpoint.recompute.schedule import Keep


@pytest.mark.parametrize("family", FAMILIES)
def test_disk_offload_gives_the_gradients_of_plain_training(family, tmp_path):
    torch.manual_seed(1)
    build, make_inputs = FAMILIES[family]
    model, inputs = build(), make_inputs()
    twin, rng = copy.deepcopy(model), random.Random(family)
    count = len(stages_by_hand(model))
    with runtime_of(twin, offloader=Offloader(tmp_path)) as runtime:
        for _ in range(8):
            runtime.use(random_schedule(rng, 0, count - 1, ("full", "disk", "drop")))
            assert_same_step(step(twin, inputs), step(model, inputs))

    assert list(tmp_path.iterdir()) == []


def test_disk_offload_holds_less_and_writes_the_rest(tmp_path):
    torch.manual_seed(0)
    model, x = mlp(64, 8), torch.randn(64, 64)

    def one():
        model(x).pow(2).mean().backward()

    plain = measure_peak(model, one, x)
    with runtime_of(model, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(tuple(Keep(stage=i, mode="disk") for i in range(8)))
        spilled = measure_peak(model, one, x)
        output = model(x)
        written = sum(file.stat().st_size for file in tmp_path.iterdir())

    assert spilled < 0.75 * plain
    assert written >= 8 * x.nbytes
    del output


def test_a_retained_graph_reads_spilled_tensors_again(tmp_path):
    torch.manual_seed(0)
    model, x = mlp(8, 4), torch.randn(4, 8)
    twin = copy.deepcopy(model)

    def one(model):
        loss = model(x).pow(2).mean()
        loss.backward(retain_graph=True)
        loss.backward()
        return [p.grad for p in model.parameters()]

    with runtime_of(twin, offloader=Offloader(tmp_path)) as runtime:
        runtime.use(tuple(Keep(stage=i, mode="disk") for i in range(4)))
        got = one(twin)

    assert all(torch.equal(a, b) for a, b in zip(got, one(model), strict=True))


def test_the_planner_may_offload_when_asked_to(tmp_path):
    torch.manual_seed(0)
    model, x = mlp(64, 6), torch.randn(64, 64)
    auto_checkpoint(model, 0.6, x, offload="disk", spill_dir=tmp_path)

    names = {mode.name for stage in model.plan.profile.chain.stages for mode in stage.modes}

    assert "disk" in names
    expected = step(copy.deepcopy(model), (x,))
    assert_same_step(step(model, (x,)), expected)
    model.plan.remove()
    assert list(tmp_path.iterdir()) == []


def test_host_offload_is_no_mode_of_a_cpu_model():
    with pytest.raises(ValueError, match=r"^offload: 'host' moves nothing for a model on the CPU"):
        auto_checkpoint(mlp(8, 4), 0.5, torch.randn(2, 8), offload="host")
    with pytest.raises(ValueError, match=r"^offload: got 'tape'"):
        auto_checkpoint(mlp(8, 4), 0.5, torch.randn(2, 8), offload="tape")
