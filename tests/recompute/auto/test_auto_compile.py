"""torch.compile: follows a plan of torch's own regions; every other order is refused by name."""

import copy

import pytest
import torch
from tests.recompute.auto.auto_models import leanest, mlp, step, transformer
from tests.recompute.auto.test_auto_together import mixed, trained
from torch import nn

from model_checkpoint.recompute import ModelRefused, auto_checkpoint

# the compiler's own: it asks inputs that are no leaves, and uses what it deprecates
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def saved_bytes(model, x):
    """What autograd holds for backward, parameters apart."""
    storages = {}
    owned = {p.untyped_storage()._cdata for p in model.parameters()}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in owned:
            storages[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(x)
    del output
    return sum(storages.values())


def same_step(got, expected):
    pairs = zip(got[1], expected[1], strict=True)
    return torch.equal(got[0], expected[0]) and all(torch.equal(a, b) for a, b in pairs)


def test_a_compiled_plan_gives_the_gradients_of_the_compiled_model_and_holds_less():
    """Dropout included: what is drawn in the first run is drawn again in the second."""
    torch.manual_seed(0)
    model, x = transformer(64, 4), torch.randn(4, 32, 64)
    twin = copy.deepcopy(model)
    leanest(model, x, executor="torch")

    ours, plain = (torch.compile(one, backend="aot_eager", fullgraph=True) for one in (model, twin))

    for seed in range(2):
        assert same_step(step(ours, (x,), seed), step(plain, (x,), seed))
    assert saved_bytes(ours, x) < 0.7 * saved_bytes(plain, x)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # a C++ compiler runs
def test_inductor_compiles_a_plan_whole_and_holds_less():
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(3)]
    model, x = nn.Sequential(*layers), torch.randn(64, 64)
    twin = copy.deepcopy(model)
    leanest(model, x, executor="torch")

    with torch._inductor.config.patch(compile_threads=1):
        ours = torch.compile(model, fullgraph=True)
        got, expected = step(ours, (x,)), step(twin, (x,))

    torch.testing.assert_close(got[:2], expected[:2])
    assert saved_bytes(ours, x) < 0.5 * saved_bytes(twin, x)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_a_plan_of_plain_training_can_be_compiled_whatever_its_executor(executor):
    model, x = mlp(16, 4), torch.randn(8, 16)
    twin = copy.deepcopy(model)
    auto_checkpoint(model, 1.0, x, executor=executor)

    ours, plain = (torch.compile(one, backend="aot_eager", fullgraph=True) for one in (model, twin))

    assert same_step(step(ours, (x,)), step(plain, (x,)))


def test_compiling_a_model_in_native_regions_is_refused_at_the_call():
    model, x = mlp(16, 4), torch.randn(8, 16)
    leanest(model, x)

    with pytest.raises(ModelRefused, match=r"^Sequential: compiled by torch.compile after .*executor='torch'"):
        torch.compile(model, backend="aot_eager")(x)


def test_compiling_one_layer_of_native_regions_is_refused_at_the_call():
    model, x = mlp(16, 4), torch.randn(8, 16)
    leanest(model, x)
    model[1].compile(backend="aot_eager")

    with pytest.raises(ModelRefused, match=r"^1\.0: compiled by torch.compile after .*executor='torch'"):
        model(x)


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_planning_a_compiled_model_is_refused_with_the_order_that_works(executor):
    model = torch.compile(mlp(16, 4), backend="aot_eager")

    with pytest.raises(ModelRefused, match=r"compiled by torch.compile already. Write torch.compile\(auto_checkpoint"):
        auto_checkpoint(model, 0.5, torch.randn(8, 16), executor=executor)


@pytest.mark.parametrize("order", ["optimizer, plan", "plan, optimizer", "plan, compiler, optimizer"])
def test_a_compiled_plan_trains_in_mixed_precision_like_the_compiled_model(order):
    torch.manual_seed(0)
    model, x = transformer(32, 4), torch.randn(4, 16, 32)
    twin = copy.deepcopy(model)
    compiler = {"backend": "aot_eager", "fullgraph": True}
    made = {}
    for what in order.split(", "):
        if what == "plan":
            auto_checkpoint(model, 0.6, x, executor="torch")
        elif what == "compiler":
            made["model"] = torch.compile(model, **compiler)
        else:
            made["optimizer"] = mixed(made.get("model", model))
    ours = made.get("model") or torch.compile(model, **compiler)

    assert set(model.plan.fates()) != {"kept"}
    got = trained(ours, made["optimizer"], x)
    expected = trained(torch.compile(twin, **compiler), mixed(twin), x)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
