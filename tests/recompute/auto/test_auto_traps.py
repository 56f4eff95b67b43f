"""What goes wrong elsewhere: buffers, generators, autocast, in-place writes, reuse, state left behind."""

import copy
import pickle
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.recompute.auto.auto_models import (
    Block,
    Residual,
    assert_same_step,
    cnn,
    every_stage,
    leanest,
    mlp,
    nested,
    runtime_of_plan,
    step,
    whole,
)
from torch import nn

from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.auto.common.errors import AutoCheckpointWarning, ModelRefused
from model_checkpoint.recompute.auto.planning.schedule import Keep, Region


def test_the_same_object_comes_back_and_remove_undoes_the_patch():
    model, x = mlp(16, 6), torch.randn(8, 16)
    keys, kind = list(model.state_dict()), type(model)

    patched = auto_checkpoint(model, 0.6, x)

    assert patched is model
    assert type(model) is kind
    assert list(model.state_dict()) == keys
    model.plan.remove()
    assert not hasattr(model, "plan")
    assert all("_call_impl" not in module.__dict__ for module in model.modules())


def test_profiling_leaves_gradients_buffers_generators_and_flags_alone():
    torch.manual_seed(3)
    model, x = cnn(4, 6), torch.randn(2, 3, 8, 8)
    model[2].eval()
    model(x).sum().backward()
    gradients = [p.grad for p in model.parameters()]
    values = [g.clone() for g in gradients]
    buffers = [b.clone() for b in model.buffers()]
    flags = [m.training for m in model.modules()]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()

    auto_checkpoint(model, 0.7, x)

    assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
    assert all(torch.equal(g, v) for g, v in zip(gradients, values, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), buffers, strict=True))
    assert [m.training for m in model.modules()] == flags
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tobytes() == states[2]


def test_a_module_used_twice_is_two_stages():
    torch.manual_seed(0)
    shared = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.2))
    model = nn.Sequential(shared, nn.Linear(8, 8), shared, nn.Linear(8, 8), shared)
    x, twin = torch.randn(4, 8), copy.deepcopy(model)
    auto_checkpoint(twin, 1.0, x)

    names = [stage.name for stage in twin.plan.stages]

    assert len(names) == len(set(names))
    assert sum(stage.shared for stage in twin.plan.stages) >= 3
    expected = step(model, (x,))
    count = len(names)
    with runtime_of_plan(twin, prefetch=True) as runtime:
        for schedule in (every_stage(count), whole(count), nested(count)):
            runtime.use(schedule)
            assert_same_step(step(twin, (x,)), expected)


class Counted(nn.Module):
    """Knows how often it ran."""

    def __init__(self):
        super().__init__()
        self.linear, self.runs = nn.Linear(8, 8), 0

    def forward(self, x):
        self.runs += 1
        return self.linear(x).tanh()


@pytest.mark.parametrize("again", [0, 1])
def test_a_module_used_twice_in_a_row_runs_again_only_where_its_plan_says(again):
    shared, x = Counted(), torch.randn(4, 8)
    model = nn.Sequential(shared, shared, nn.Linear(8, 8))
    auto_checkpoint(model, 1.0, x)
    body = [Keep(stage=index) for index in range(3)]
    body[again] = Region(start=again, stop=again, body=(Keep(stage=again),))

    with runtime_of_plan(model) as runtime:
        runtime.use(tuple(body))
        shared.runs = 0
        step(model, (x,))

    assert shared.runs == 3


def test_integer_inputs_masks_and_frozen_prefixes_are_legal():
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(11, 16)
            self.layers = nn.ModuleList([nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(5)])
            self.head = nn.Linear(16, 11)

        def forward(self, tokens, mask=None, extra=("a", 1)):
            hidden = self.embed(tokens)
            for layer in self.layers:
                hidden = layer(hidden, src_mask=mask)
            return {"logits": self.head(hidden), "extra": extra}

    model = Net()
    model.embed.requires_grad_(False)
    model.layers[0].requires_grad_(False)
    sample = {"tokens": torch.randint(0, 11, (2, 7)), "mask": torch.triu(torch.ones(7, 7, dtype=torch.bool), 1)}
    twin = copy.deepcopy(model)

    def loss(output):
        return F.cross_entropy(output["logits"].flatten(0, 1), sample["tokens"].flatten())

    leanest(twin, sample, loss=loss)

    def one(model):
        torch.manual_seed(1)
        model.zero_grad()
        loss(model(**sample)).backward()
        return [p.grad for p in model.parameters() if p.requires_grad]

    assert all(torch.equal(a, b) for a, b in zip(one(twin), one(model), strict=True))
    assert twin.layers[0].linear1.weight.grad is None


def test_a_larger_input_is_warned_about_once():
    model = mlp(16, 6)
    auto_checkpoint(model, 0.6, torch.randn(8, 16))

    with pytest.warns(AutoCheckpointWarning, match=r"^input: 1024 bytes, planned for 512"):
        model(torch.randn(16, 16)).sum().backward()
    model(torch.randn(16, 16)).sum().backward()


def test_an_input_up_to_a_tenth_larger_is_not_warned_about():
    model = mlp(16, 6)
    auto_checkpoint(model, 0.6, torch.randn(20, 16))

    model(torch.randn(22, 16)).sum().backward()  # a warning would be an error
    with pytest.warns(AutoCheckpointWarning, match=r"^input: 1472 bytes, planned for 1280"):
        model(torch.randn(23, 16)).sum().backward()


class Cache:
    """Keys of former calls, as models for text keep them."""

    def __init__(self):
        self.keys = [[], []]

    def append(self, value):
        self.keys[1].append(value)


class Remember(nn.Module):
    """Notes something in an argument."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, log):
        log.update({len(log): 1}) if isinstance(log, dict) else log.append(1)
        return self.linear(x)


class Remembering(nn.Module):
    """Hands one changing argument to all layers."""

    def __init__(self, kind):
        super().__init__()
        self.layers, self.kind = nn.ModuleList([Remember() for _ in range(4)]), kind

    def forward(self, x):
        log = self.kind()
        for layer in self.layers:
            x = layer(x, log=log)
        return x


@pytest.mark.parametrize("kind", [list, dict, Cache])
def test_an_argument_that_a_layer_changes_is_refused_by_name(kind):
    with pytest.raises(ModelRefused, match=rf"^layers\.0: the layer changes its log \({kind.__name__}\)"):
        auto_checkpoint(Remembering(kind), 0.5, torch.randn(2, 4))


def test_compiled_models_are_refused_by_name():
    compiled = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    compiled.compile(backend="eager")
    with pytest.raises(ModelRefused, match=r"^Sequential: compiled by torch.compile"):
        auto_checkpoint(compiled, 0.5, torch.ones(1, 2))


def test_a_copy_or_pickle_of_a_patched_model_is_a_plain_model():
    model, x = mlp(8, 6), torch.randn(4, 8)
    auto_checkpoint(model, 0.6, x)

    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        expected = step(twin, (x,))
        assert twin.plan.statistics is None
        assert_same_step(step(model, (x,)), expected)
        with torch.no_grad():
            twin[0][0].weight.zero_()
        assert not torch.equal(model[0][0].weight, twin[0][0].weight)


def test_stages_called_out_of_order_or_skipped_still_train_rightly():
    class Skipping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Block(8, rate=0.0) for _ in range(6)])
            self.skip = ()

        def forward(self, x):
            for number, layer in enumerate(self.layers):
                if number not in self.skip:
                    x = layer(x)
            return x

    torch.manual_seed(0)
    model, x = Skipping(), torch.randn(1, 3, 8)
    twin = copy.deepcopy(model)
    leanest(twin, x)
    for skip in ((0,), (2, 3), (5,), (0, 1, 2, 3, 4)):
        model.skip = twin.skip = skip
        assert_same_step(step(twin, (x,)), step(model, (x,)))


def test_residual_blocks_are_single_stages():
    model, x = nn.Sequential(Residual(4), Residual(4), Residual(4)), torch.randn(1, 4, 4, 4)
    auto_checkpoint(model, 1.0, x)

    assert [stage.name for stage in model.plan.stages] == ["0", "1", "2"]
