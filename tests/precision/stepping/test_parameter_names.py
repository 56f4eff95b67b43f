"""Which parameters an optimizer takes, and under which names."""

import pytest
import torch
from tests.precision.precision_models import build, options, wrap
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from model_checkpoint.precision import MixedPrecisionCheckpointManager as Manager
from model_checkpoint.precision import MixedPrecisionOptimizer
from model_checkpoint.precision.errors import InvalidArgument
from model_checkpoint.precision.scaling.consensus import DEFAULT_GROUP, agree_on


def test_two_parameters_under_one_name_are_refused():
    twice = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]
    groups = [{"params": list(one.named_parameters())} for one in twice]

    with pytest.raises(InvalidArgument, match="weight: two parameters have this name"):
        MixedPrecisionOptimizer(torch.optim.SGD(groups, lr=0.1), options())


def test_submodules_that_are_called_alike_without_their_wrappers_are_refused():
    layer = torch.nn.Linear(2, 2)
    model = torch.nn.ModuleDict({"module": torch.nn.ModuleDict({"a": layer}), "a": torch.nn.Linear(2, 2)})

    with pytest.raises(InvalidArgument, match=r"several parameters are called \['a.bias', 'a.weight'\]"):
        wrap(model)


def test_parameters_that_no_half_stands_for_are_refused():
    with pytest.raises(InvalidArgument, match=r"weight: dtype is torch.float64, expected float32, float16 or bfloat16"):
        wrap(torch.nn.Linear(2, 2).double())


def test_an_optimizer_without_a_model_trains_its_parameters_and_no_others():
    model = build()
    optimizer = MixedPrecisionOptimizer(torch.optim.AdamW(model.named_parameters(), lr=1e-2), options("bf16"))

    assert optimizer.parameter_table.untrained() == {}
    assert optimizer.parameter_table.unbound() == {}
    assert Manager.create_checkpoint(optimizer).untrained_weights == {}


def test_values_half_cannot_hold_are_taken_where_the_group_has_fallen_back():
    large = {"w": torch.full((2,), 70000.0)}
    optimizer = MixedPrecisionOptimizer(torch.optim.SGD([{"params": []}], lr=0.1), options())
    with pytest.raises(InvalidArgument, match="w: holds 70000"):
        optimizer.set_parameters(large)

    optimizer.fallback_to_fp32()
    optimizer.set_parameters(large)

    assert optimizer.training_weights["w"].tolist() == [70000.0, 70000.0]


def test_only_a_tied_weight_has_other_names():
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    model["b"].weight = model["a"].weight

    assert Manager.create_checkpoint(wrap(model)).aliases == {"a.weight": ("b.weight",)}


def test_weights_that_changed_their_shape_cannot_be_taken_over():
    model = torch.nn.Linear(2, 2)
    optimizer = wrap(model)
    model.weight.data = torch.zeros(3, 2, dtype=model.weight.dtype)

    with pytest.raises(InvalidArgument, match=r"weight: is now \(3, 2\) on cpu, its master \(2, 2\) on cpu"):
        optimizer.sync_from_model()


@pytest.fixture
def world():
    """This process as the only rank."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_one_process_agrees_with_itself(world):
    """Also where it is the only one of a group."""
    flags, cpu = [True, False, True], torch.device("cpu")

    for group in (None, DEFAULT_GROUP, torch.distributed.group.WORLD):
        assert agree_on(flags, group=group, device=cpu) == flags


def test_parameters_sharded_over_processes_are_refused_by_name(world):
    weight = torch.nn.Parameter(distribute_tensor(torch.ones(4, 2), world, [Shard(0)]))

    with pytest.raises(InvalidArgument, match="w: is sharded over processes"):
        MixedPrecisionOptimizer(torch.optim.SGD([("w", weight)], lr=0.1), options())
