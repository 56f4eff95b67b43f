"""What auto_checkpoint refuses by name, what it says of the sample it is given, and whom it tells of the plan."""

import copy
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from tests.recompute.auto.auto_models import mlp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, distribute_module
from torch.nn.parallel import DistributedDataParallel

from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.auto.common.errors import AutoCheckpointWarning, ModelRefused
from model_checkpoint.recompute.auto.measuring.sample import default_loss


@pytest.fixture(scope="module")
def world():
    """This process as the only rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def replicated(model, mesh):
    def place(_, module, mesh):
        for name, parameter in list(module.named_parameters(recurse=False)):
            spread = dist.tensor.distribute_tensor(parameter.data, mesh, [Replicate()])
            module.register_parameter(name, nn.Parameter(spread))

    return distribute_module(model, mesh, place)


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda model, mesh: DistributedDataParallel(model), r"DistributedDataParallel: already wrapped in DDP. Write"),
        (lambda model, mesh: fully_shard(model, mesh=mesh) and model, r"Sequential: sharded by FSDP already"),
        (replicated, r"0\.0\.weight: DTensor parameters are not supported"),
    ],
    ids=["ddp", "fsdp", "dtensor"],
)
def test_a_model_that_is_wrapped_already_is_refused_by_name(wrap, message, world):
    with pytest.raises(ModelRefused, match=message):
        auto_checkpoint(wrap(nn.Sequential(mlp(4, 1)), world), 0.5, torch.randn(2, 4))


def test_a_planned_model_that_is_sharded_afterwards_is_refused_by_name(world):
    x = torch.randn(8, 16)
    model = auto_checkpoint(mlp(16, 4), 0.6, x)

    fully_shard(model[1], mesh=world)

    with pytest.raises(
        ModelRefused, match=r"^1: sharded by fully_shard after auto_checkpoint \(Sequential is now FSDP"
    ):
        model(x)


@pytest.mark.parametrize(("budget", "sample"), [(None, torch.ones(2, 4)), (0.5, None), (None, None)])
def test_a_plan_needs_a_budget_and_a_sample(budget, sample):
    with pytest.raises(TypeError, match="expected memory_budget and sample_input, or plan="):
        auto_checkpoint(mlp(4, 2), budget, sample)


def test_the_run_is_told_the_plan_it_trains_by():
    told = {}
    run = SimpleNamespace(log_hyperparameters=told.update)
    x = torch.randn(8, 16)
    model = auto_checkpoint(mlp(16, 4), 0.7, x, tracker=run)

    assert told == {"memory_plan": model.plan.to_dict()}

    told.clear()
    auto_checkpoint(mlp(16, 4), plan=model.plan.to_dict(), tracker=run)
    assert told["memory_plan"]["schedule"] == model.plan.to_dict()["schedule"]


def test_a_plan_that_fails_on_its_first_step_leaves_the_model_as_it_was():
    model, x = mlp(16, 6), torch.randn(8, 16)

    def loss(output):
        if hasattr(model, "plan"):
            raise RuntimeError("no step by this plan")
        return output.square().mean()

    with pytest.raises(RuntimeError, match="no step by this plan"):
        auto_checkpoint(model, 0.6, x, loss=loss)

    assert not hasattr(model, "plan")
    assert all("_call_impl" not in module.__dict__ for module in model.modules())


def test_the_loss_of_a_model_that_gives_one_is_its_own():
    own = torch.tensor(3.0)

    assert default_loss(SimpleNamespace(loss=own)) is own
    assert default_loss((torch.full((2,), 2.0), torch.ones(2), torch.ones(2, dtype=torch.int64))) == 5.0
    with pytest.raises(TypeError, match="the model returned Tensor with no float tensor"):
        default_loss(torch.ones(2, dtype=torch.int64))


class Repeated(nn.Module):
    """Takes a number beside its tensor."""

    def __init__(self):
        super().__init__()
        self.layers = mlp(16, 6)

    def forward(self, x, times, *, label=None):
        assert isinstance(times, int)
        return self.layers(x) * times


def test_a_sample_may_hold_numbers_texts_and_inputs_that_want_gradients():
    model, x = Repeated(), torch.randn(8, 16, requires_grad=True)
    sample = {"x": x, "times": 3, "label": "train"}

    profile = auto_checkpoint(model, 0.8, sample).plan.profile
    auto_checkpoint(model, 0.7, profile=profile)  # the sample is borrowed again, numbers and all

    assert x.grad is None
    plain = copy.deepcopy(model)
    for one in (model, plain):
        one(**sample).sum().backward()
    assert torch.equal(model.layers[0][0].weight.grad, plain.layers[0][0].weight.grad)


class Counting(nn.Module):
    """Passes a number on beside its tensor."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(16, 16), nn.GELU())

    def forward(self, pair):
        return self.layer(pair[0]), pair[1] + 1


def test_layers_may_return_numbers_beside_their_tensors():
    model, x = nn.Sequential(*[Counting() for _ in range(4)]), torch.randn(8, 16)
    plain = copy.deepcopy(model)

    auto_checkpoint(model, 1.0, ((x, 0),))
    auto_checkpoint(model, model.plan.floor_bytes, ((x, 0),), profile=model.plan.profile)

    for one in (model, plain):
        output, count = one((x, 0))
        output.sum().backward()
        assert count == 4
    assert torch.equal(model[0].layer[0].weight.grad, plain[0].layer[0].weight.grad)


def test_a_model_that_calls_other_layers_the_second_time_is_refused():
    class Fickle(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.calls = mlp(16, 4), 0

        def forward(self, x):
            self.calls += 1
            return self.layers(x) if self.calls == 1 else self.layers[0](x)

    with pytest.raises(ModelRefused, match=r"the second forward did not call it as the first"):
        auto_checkpoint(Fickle(), 0.5, torch.randn(8, 16))


class Caching(nn.Module):
    """Fills a cache unless told not to, as language models do."""

    def __init__(self):
        super().__init__()
        self.layers, self.config, self.seen = mlp(16, 4), SimpleNamespace(use_cache=True), []

    def forward(self, x, use_cache=None):
        self.seen.append(use_cache)
        return self.layers(x)


@pytest.mark.parametrize("given", ["tensor", "tuple", "dict"])
def test_a_cache_is_switched_off_for_the_sample_and_in_training(given):
    x = torch.randn(8, 16)
    model = Caching()

    auto_checkpoint(model, 0.6, {"tensor": x, "tuple": (x,), "dict": {"x": x}}[given])
    assert set(model.seen) == {False}

    with pytest.warns(AutoCheckpointWarning, match="use_cache: switched off while training"):
        model(x)
    model(x, use_cache=True)  # told once
    model(x, use_cache=False)
    assert set(model.seen) == {False}


def test_a_model_whose_cache_is_off_may_be_asked_for_one_and_is_told():
    x, model = torch.randn(8, 16), Caching()
    model.config.use_cache = False

    auto_checkpoint(model, 0.6, x)
    model(x)

    assert set(model.seen) == {None}
    with pytest.warns(AutoCheckpointWarning, match="use_cache: switched off"):
        model(x, use_cache=True)
    assert model.seen[-1] is False


def test_a_plan_shows_its_stages_and_its_executor():
    model, x = mlp(16, 4), torch.randn(8, 16)

    plan = auto_checkpoint(model, 0.9, x, executor="torch").plan

    assert "regions of torch.utils.checkpoint: each stage is kept, or run again on its own" in plan.explain()
    page = plan._repr_html_()
    assert "memory plan: peak" in page
    assert all(f">{stage.name}<" in page for stage in plan.stages)


def test_a_planned_model_without_gradients_runs_as_it_is():
    model, x = mlp(16, 4), torch.randn(8, 16)
    expected = model(x)
    auto_checkpoint(model, 1.0, x, executor="torch")
    auto_checkpoint(model, model.plan.floor_bytes, profile=model.plan.profile, executor="torch")

    with torch.no_grad():
        assert torch.equal(model(x), expected)


def test_a_forward_of_the_users_own_is_what_a_copy_of_the_model_has():
    model, x = mlp(16, 4), torch.randn(8, 16)
    layer = model[0]
    layer.forward = type(layer).forward.__get__(layer)
    auto_checkpoint(model, 1.0, x, executor="torch")
    auto_checkpoint(model, model.plan.floor_bytes, profile=model.plan.profile, executor="torch")

    twin = copy.deepcopy(model)

    assert torch.equal(twin(x), model(x))
    assert not hasattr(twin[0].forward, "remove")
