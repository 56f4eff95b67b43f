"""Plans in force as regions of torch.utils.checkpoint: the same gradients, within the budget, nothing else changed."""

import copy
import inspect
import json
import pickle

import pytest
import torch
from tests.recompute.auto.auto_models import FAMILIES, assert_same_step, leanest, mlp, seeded, step, transformer
from torch import nn

from model_checkpoint.recompute import (
    BudgetTooSmall,
    PlanMismatch,
    ValueChanged,
    auto_checkpoint,
    is_recomputing,
    measure_peak,
)
from model_checkpoint.recompute.auto.planning.schedule import Keep, Region, is_flat
from model_checkpoint.recompute.auto.running.torch_regions import TorchRegions


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("family", ["mlp", "transformer", "encoder-decoder"])
def test_regions_of_torch_give_the_gradients_of_plain_training_within_the_budget(family, share):
    model, inputs = seeded(FAMILIES[family])
    twin = copy.deepcopy(model)
    auto_checkpoint(model, 1.0, inputs, executor="torch")
    plan = model.plan
    budget = int(plan.floor_bytes + share * (plan.plain_bytes - plan.floor_bytes))

    auto_checkpoint(model, budget, profile=plan.profile, executor="torch")

    assert "recomputed" in model.plan.fates()
    assert is_flat(model.plan.schedule)
    for seed in range(3):
        assert_same_step(step(model, inputs, seed), step(twin, inputs, seed))
    peak = measure_peak(model, lambda: model(*inputs).pow(2).mean().backward(), inputs)
    assert peak == model.plan.peak_bytes <= budget


class Stateful(nn.Module):
    """A layer that a second run would disturb: batch norm moves its statistics."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(16, 16), nn.BatchNorm1d(16)

    def forward(self, x):
        return self.norm(self.linear(x)).relu()


def test_a_layer_that_changes_buffers_is_kept_by_torch_regions():
    torch.manual_seed(0)
    layers = [Stateful() if i == 2 else nn.Sequential(nn.Linear(16, 16), nn.GELU()) for i in range(6)]
    model, x = nn.Sequential(*layers), torch.randn(512, 16)
    twin = copy.deepcopy(model)

    leanest(model, x, executor="torch")

    assert model.plan.fates()[2] == "kept"
    assert_same_step(step(model, (x,)), step(twin, (x,)))


def test_a_layer_that_changes_buffers_only_in_training_is_an_error_where_it_was_planned_in_evaluation():
    model, x = nn.Sequential(*[Stateful() for _ in range(6)]).eval(), torch.randn(512, 16)
    leanest(model, x, executor="torch")
    model.train()

    with pytest.raises(
        ValueChanged, match=r": a buffer of shape .* was changed since the first run.*executor='native'"
    ):
        step(model, (x,))


def test_where_torch_can_repeat_no_layer_the_floor_is_plain_training():
    build, make_inputs = FAMILIES["cnn"]

    with pytest.raises(BudgetTooSmall, match="below the floor") as caught:
        auto_checkpoint(build(), 0.5, make_inputs(), executor="torch")

    assert caught.value.floor_bytes > 0


def test_a_module_called_twice_is_kept_by_torch_regions():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(5)])

        def forward(self, x):
            for layer in [*self.layers, self.layers[1]]:
                x = layer(x)
            return x

    torch.manual_seed(0)
    model, x = Twice(), torch.randn(512, 16)
    twin = copy.deepcopy(model)

    leanest(model, x, executor="torch")

    assert [model.plan.fates()[i] for i in (1, 5)] == ["kept", "kept"]
    assert_same_step(step(model, (x,)), step(twin, (x,)))


def test_hooks_run_once_and_code_inside_knows_its_second_run():
    model, x, outside, inside = transformer(16, 4), torch.randn(2, 6, 16), [], []
    leanest(model, x, executor="torch")
    model[0].register_forward_hook(lambda *_: outside.append(is_recomputing()))
    model[0].norm1.register_forward_hook(lambda *_: inside.append(is_recomputing()))

    step(model, (x,))

    assert (outside, inside) == ([False], [False, True])
    assert model.plan.statistics.layers()["0"].recomputes == 1


def test_a_parameter_changed_between_forward_and_backward_is_an_error():
    model, x = mlp(16, 4), torch.randn(8, 16)
    leanest(model, x, executor="torch")
    again = model.plan.fates().index("recomputed")
    loss = model(x).pow(2).mean()
    with torch.no_grad():
        model[again][0].weight.add_(1)

    with pytest.raises(ValueChanged, match=rf"^{again}: parameter 0 .*changed in place between forward and backward"):
        loss.backward()


def test_train_flags_changed_between_forward_and_backward_do_not_matter():
    torch.manual_seed(0)
    model, x = transformer(16, 4, rate=0.5), torch.randn(2, 6, 16)
    twin = copy.deepcopy(model)
    leanest(model, x, executor="torch")
    for one in (model, twin):
        torch.manual_seed(1)
        loss = one(x).pow(2).mean()
        one.eval()
        loss.backward()
        assert not one[0].drop.training

    assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_the_signature_of_forward_stays_and_remove_leaves_no_trace():
    """Trainers read the signature to choose columns; the model must look as it did."""

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = mlp(16, 4)

        def forward(self, values, scale=1.0):
            return self.layers(values * scale)

    model = Named()
    before, signature = [list(module.__dict__) for module in model.modules()], inspect.signature(model.forward)

    leanest(model, torch.randn(8, 16), executor="torch")

    assert inspect.signature(model.forward) == signature
    model.plan.remove()
    assert [list(module.__dict__) for module in model.modules()] == before


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_in_torch_regions_is_a_plain_model(duplicate):
    model, x = mlp(16, 4), torch.randn(8, 16)
    leanest(model, x, executor="torch")

    other = duplicate(model)
    with torch.no_grad():
        other[0][0].weight.zero_()
    seen = []
    for layer in other:
        layer[1].register_forward_hook(lambda *_: seen.append(is_recomputing()))

    step(other, (x,))

    assert seen == [False] * 4
    assert model[0][0].weight.any()


def test_a_plan_of_torch_regions_is_put_in_force_again_from_plain_values():
    torch.manual_seed(0)
    model, x = transformer(16, 4), torch.randn(2, 6, 16)
    twin = copy.deepcopy(model)
    leanest(model, x, executor="torch")
    data = json.loads(json.dumps(model.plan.to_dict()))
    model.plan.remove()

    auto_checkpoint(model, plan=data)

    assert model.plan.executor == "torch"
    assert "forward" in model[0].__dict__
    assert_same_step(step(model, (x,)), step(twin, (x,)))


def test_a_schedule_that_torch_cannot_run_is_refused():
    model = mlp(16, 4)
    regions = TorchRegions(model, [(str(i), layer) for i, layer in enumerate(model)])
    wide = Region(start=0, stop=1, body=(Keep(stage=0), Keep(stage=1)))

    with pytest.raises(PlanMismatch, match="nested or long regions"):
        regions.use((wide, Keep(stage=2), Keep(stage=3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "own"}, "executor: got 'own', expected one of 'native', 'torch'"),
        ({"executor": "torch", "prefetch": True}, "prefetch: executor='torch' has none"),
        ({"executor": "torch", "offload": "disk"}, "offload: executor='torch' has none"),
        ({"executor": "torch", "determinism": "hash"}, "determinism: executor='torch' compares metadata at most"),
    ],
)
def test_what_an_executor_does_not_have_is_refused_by_name(options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        auto_checkpoint(mlp(16, 4), 0.5, torch.randn(8, 16), **options)


def test_a_profile_of_one_executor_is_not_asked_for_plans_of_the_other():
    model, x = mlp(16, 4), torch.randn(8, 16)
    auto_checkpoint(model, 1.0, x)

    with pytest.raises(ValueError, match=r"^profile: made with executor='native'.*got executor='torch'"):
        auto_checkpoint(model, 0.5, profile=model.plan.profile, executor="torch")
