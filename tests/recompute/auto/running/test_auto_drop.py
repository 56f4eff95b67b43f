"""Drop: cheap results are not kept but made again."""

import copy

import pytest
import torch
import torch.nn.functional as F
from tests.recompute.auto.auto_models import (
    assert_same_step,
    autocast_gradients,
    runtime_of,
    step,
    transformer,
)
from torch import nn

from model_checkpoint.recompute.auto.common.peak import measure_peak
from model_checkpoint.recompute.auto.planning.schedule import Keep


@pytest.mark.parametrize("mode", ["drop", "drop+masks"])
def test_drop_under_autocast_gives_the_same_gradients(mode):
    torch.manual_seed(0)
    model, x = transformer(16, 3), torch.randn(2, 6, 16)
    twin = copy.deepcopy(model)

    with runtime_of(twin) as runtime:
        runtime.use(tuple(Keep(stage=i, mode=mode) for i in range(3)))
        got = autocast_gradients(twin, x)

    assert all(torch.equal(a, b) for a, b in zip(got, autocast_gradients(model, x), strict=True))


def test_functional_calls_are_dropped_too():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(64, 256), nn.Linear(256, 64)

        def forward(self, x):
            return x + self.b(F.gelu(self.a(F.layer_norm(x, (64,)))))

    class Method(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.a = nn.BatchNorm1d(64), nn.Linear(64, 64)

        def forward(self, x):
            return self.norm(self.a(x)).relu()

    torch.manual_seed(0)
    for kind in (Functional, Method):
        model, x = nn.Sequential(*[kind() for _ in range(4)]), torch.randn(64, 64)
        twin = copy.deepcopy(model)
        plain = measure_peak(model, lambda m=model, x=x: m(x).pow(2).mean().backward(), x)
        with runtime_of(model) as runtime:
            runtime.use(tuple(Keep(stage=i, mode="drop") for i in range(4)))
            dropped = measure_peak(model, lambda m=model, x=x: m(x).pow(2).mean().backward(), x)

            model.load_state_dict(twin.state_dict())
            got = step(model, (x,))

        assert dropped < 0.9 * plain
        assert_same_step(got, step(twin, (x,)))


def test_a_dropped_result_that_is_written_into_is_saved_instead():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            hidden = F.gelu(self.a(x))
            hidden.add_(1)
            return self.b(hidden)

    torch.manual_seed(0)
    model, x = nn.Sequential(*[Writes() for _ in range(3)]), torch.randn(4, 8)
    expected = step(copy.deepcopy(model), (x,))
    with runtime_of(model) as runtime:
        runtime.use(tuple(Keep(stage=i, mode="drop") for i in range(3)))
        assert_same_step(step(model, (x,)), expected)
