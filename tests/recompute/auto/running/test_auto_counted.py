"""What counts as memory held: what a second run needs, to the byte, and nothing that a budget leaves out."""

import random

import numpy as np
import pytest
import torch
from tests.recompute.auto.auto_models import every_stage
from torch import nn

from model_checkpoint.recompute.auto.common.peak import PeakTracker, excluded_tensors, measure_peak
from model_checkpoint.recompute.auto.running.runtime import Runtime
from model_checkpoint.recompute.auto.running.stage_call import StageCall, StageFacts
from model_checkpoint.recompute.common.context import RandomState

COUNT, X = 3, torch.randn(64, 16)


class Stage(nn.Module):
    """A stage with something besides computing."""

    def __init__(self, extra=None):
        super().__init__()
        self.linear, self.extra = nn.Linear(16, 16), extra or nn.Identity()

    def forward(self, x):
        return self.extra(self.linear(x).tanh())


class Dice(nn.Module):
    """Draws from Python's and NumPy's generators."""

    def forward(self, x):
        return x * (random.random() + float(np.random.rand()))


class Writes(Stage):
    """Writes into its input."""

    def forward(self, x):
        return self.linear(x.mul_(2))


def held_by_regions(build, **facts):
    """Bytes that wait for backward when every stage is a region of its own; inputs of regions are taken off."""
    model = nn.Sequential(*[build() for _ in range(COUNT)])
    stages = [StageCall(i, StageFacts(name=str(i), **facts), module) for i, module in enumerate(model)]
    # the first input belongs to the caller; the others, and the result, are held by regions or by the caller
    with Runtime(model, stages) as runtime, PeakTracker(excluded_tensors(model, X)) as tracker:
        runtime.use(every_stage(COUNT))
        output = model(X.clone().requires_grad_() * 1.0)
        held = tracker.live
    assert output.requires_grad
    return held - X.nbytes * (COUNT + 2)  # the clone, its product, and each stage's result


def test_a_stage_that_draws_nothing_holds_its_input_and_nothing_else():
    assert held_by_regions(Stage) == 0


def test_a_stage_that_draws_holds_the_state_of_the_generator():
    drawing = held_by_regions(lambda: Stage(nn.Dropout(0.5)))

    assert drawing == COUNT * torch.get_rng_state().nbytes
    assert held_by_regions(lambda: Stage(nn.Dropout(0.5)).eval()) == 0


def test_states_of_python_and_numpy_count_as_memory_held():
    state = RandomState.capture(with_torch=False)
    words = len(state.python[1]) + -(-len(state.numpy) // 64) * 64

    assert held_by_regions(lambda: Stage(Dice()), draws_python=True) == COUNT * words


def test_old_values_of_buffers_count_as_memory_held():
    buffers = ("extra.running_mean", "extra.running_var", "extra.num_batches_tracked")

    assert held_by_regions(lambda: Stage(nn.BatchNorm1d(16)), buffers=buffers) == COUNT * (16 * 4 + 16 * 4 + 8)


def forward_peak(model, **facts):
    stages = [StageCall(i, StageFacts(name=str(i), **facts), module) for i, module in enumerate(model)]
    with Runtime(model, stages) as runtime:
        runtime.use(every_stage(COUNT))
        return measure_peak(model, lambda: model(X.clone().requires_grad_() * 1.0), X)


def test_the_copy_for_a_stage_that_writes_into_its_input_counts_as_memory_held():
    """The region holds what it was given; what the stage writes into is one tensor more while it runs."""
    model = nn.Sequential(*[Writes() for _ in range(COUNT)])

    assert forward_peak(model, writes=(0,)) == forward_peak(model) + X.nbytes


def test_a_budget_leaves_out_parameters_buffers_gradients_and_inputs():
    model, inputs = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), {"x": [X[:, :4].clone().requires_grad_()]}
    before = {id(tensor) for tensor in excluded_tensors(model, inputs)}
    model(inputs["x"][0]).sum().backward()
    expected = [*model.parameters(), *model.buffers(), *inputs["x"]]

    assert before == {id(tensor) for tensor in expected}
    gradients = [p.grad for p in (*model.parameters(), *inputs["x"])]
    assert {id(t) for t in excluded_tensors(model, inputs)} == {id(t) for t in (*expected, *gradients)}


@pytest.mark.parametrize("excluded", [False, True])
def test_an_excluded_tensor_is_not_counted_when_an_operation_returns_it(excluded):
    table, indices = nn.Parameter(torch.ones(1000)), torch.zeros(1, dtype=torch.long)
    with PeakTracker([table] if excluded else []) as tracker:
        part = torch.ops.aten.alias(table.detach())
        fresh = part.index_select(0, indices)

    assert tracker.live == fresh.nbytes
