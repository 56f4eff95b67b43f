"""Which parameters an optimizer takes, and under which names."""

import pytest
import torch
from tests.precision.precision_models import build, options, wrap
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from model_checkpoint.precision import MixedPrecisionCheckpointManager as Manager
from model_checkpoint.precision import MixedPrecisionOptimizer
from model_checkpoint.precision.errors import InvalidArgument, UnknownParameter, UnsupportedOptimizer, WeightsChanged
from model_checkpoint.precision.scaling.consensus import DEFAULT_GROUP, agree_on


def test_two_parameters_under_one_name_are_refused():
    twice = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]
    groups = [{"params": list(one.named_parameters())} for one in twice]

    with pytest.raises(InvalidArgument, match="weight: two parameters have this name"):
        MixedPrecisionOptimizer(torch.optim.SGD(groups, lr=0.1), options())


def test_two_parameters_of_one_group_that_are_called_alike_without_their_wrappers_are_refused():
    named = [("module.w", torch.nn.Parameter(torch.ones(1))), ("w", torch.nn.Parameter(torch.ones(1)))]

    with pytest.raises(InvalidArgument, match="w: two parameters have this name"):
        MixedPrecisionOptimizer(torch.optim.SGD(named, lr=0.1), options())


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


def test_weights_of_which_half_knows_every_number_are_noticed_too_when_they_are_converted():
    model = torch.nn.Linear(2, 2)
    torch.nn.init.ones_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = wrap(model)
    model.float()

    with pytest.raises(WeightsChanged, match="changed outside the optimizer"):
        optimizer.step()


def test_what_is_taken_over_or_the_same_has_not_changed_any_more():
    model = build()
    optimizer = wrap(model)
    with torch.no_grad():
        model.mix.weight.zero_()
    assert optimizer.sync_from_model() == ["mix.weight"]
    assert optimizer.sync_from_model() == []

    with torch.no_grad():
        model.mix.weight.zero_()  # once more, and found to be the same at the step
    optimizer.scale_loss(torch.ones(()))
    optimizer.step()
    assert optimizer.sync_from_model() == []

    optimizer.fallback_to_fp32()
    assert optimizer.sync_from_model() == []
    optimizer.set_parameters({name: weight.clone() for name, weight in optimizer.master_weights.items()})
    assert optimizer.sync_from_model() == []


def empty():
    return MixedPrecisionOptimizer(torch.optim.SGD([{"params": []}], lr=0.5), options("bf16", max_grad_norm=0.0))


def test_parameters_given_by_name_are_the_objects_that_are_trained():
    first, second, optimizer = torch.nn.Parameter(torch.ones(2)), torch.ones(3).bfloat16(), empty()

    optimizer.set_parameters({"first": first, "second": second})
    optimizer.step({"first": torch.ones(2), "second": torch.full((3,), 2.0**-10)})

    assert (first.dtype, first.tolist()) == (torch.bfloat16, [0.5, 0.5])
    assert optimizer.master_weights["second"].tolist() == [1.0 - 2.0**-11] * 3  # more than a half can tell
    assert len(optimizer.param_groups[0]["params"]) == 2


def test_values_half_cannot_hold_are_taken_by_a_layer_that_stays_in_fp32():
    base = torch.optim.SGD([{"params": []}], lr=0.5)
    optimizer = MixedPrecisionOptimizer(base, options())

    optimizer.set_parameters({"LayerNorm.weight": torch.tensor([1e6]), "w": torch.ones(1)})

    assert optimizer.training_weights["LayerNorm.weight"].tolist() == [1e6]
    assert optimizer.training_weights["w"].dtype == torch.float16


def test_weights_that_are_inf_already_are_not_refused_for_their_range():
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, float("inf"))

    assert wrap(model).training_weights["weight"].tolist() == [[float("inf")]]


def test_whole_numbers_among_the_parameters_are_left_alone():
    model = torch.nn.Linear(1, 1)
    model.table = torch.nn.Parameter(torch.tensor([70_000]), requires_grad=False)

    wrap(model, lambda _: torch.optim.SGD([model.weight, model.bias], lr=0.1))

    assert (model.table.dtype, model.table.tolist()) == (torch.int64, [70_000])


def test_in_fallback_a_step_keeps_the_map_that_was_given():
    optimizer = empty()
    optimizer.fallback_to_fp32()
    given = {"w": torch.ones(2)}
    optimizer.set_parameters(given)

    optimizer.step({"w": torch.ones(2)})

    assert optimizer.master_weights is optimizer.training_weights is given
    assert given["w"].tolist() == [0.5, 0.5]


def test_a_closure_is_refused_however_it_is_given():
    optimizer = wrap(build())

    for call in (lambda: optimizer.step(lambda: 1.0), lambda: optimizer.step(closure=lambda: 1.0)):
        with pytest.raises(UnsupportedOptimizer, match="closures are not supported"):
            call()


def test_a_name_too_many_or_too_few_is_told_and_nothing_is_written():
    weights = [torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))]
    optimizer = MixedPrecisionOptimizer(torch.optim.SGD(weights, lr=0.1), options())
    ours = dict.fromkeys(("group0.param0", "group0.param1"), torch.zeros(1))

    with pytest.raises(UnknownParameter, match=r"missing \[\], unexpected \['more'\]"):
        optimizer.set_parameters({**ours, "more": torch.zeros(1)})
    with pytest.raises(UnknownParameter, match=r"missing \['group0.param1'\], unexpected \[\]"):
        optimizer.set_parameters({"group0.param0": torch.zeros(1)})

    assert all(weight.item() == 1.0 for weight in optimizer.master_weights.values())


def test_any_optimizer_that_cannot_step_without_a_closure_is_refused():
    class Searching(torch.optim.SGD):
        def step(self, closure):
            return super().step(closure)

    with pytest.raises(UnsupportedOptimizer, match="Searching: steps by a closure"):
        wrap(build(), lambda p: Searching(p, lr=0.1))
