"""Drop, one kind of cheap result at a time: the same gradients, and exactly its bytes are not held."""

import contextlib
import copy

import pytest
import torch
import torch.nn.functional as F
from tests.recompute.auto.auto_models import assert_same_step, runtime_of, step
from torch import nn

from model_checkpoint.recompute.auto.common.peak import PeakTracker, excluded_tensors, measure_peak
from model_checkpoint.recompute.auto.planning.schedule import Keep

WIDTH, STAGES = 32, 3


class Call(nn.Module):
    """A function as a module, so that a table can name both."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Cheap(nn.Module):
    """Tanh holds its result, so what is cheap can be made from that; the product holds the cheap result."""

    def __init__(self, cheap):
        super().__init__()
        self.a, self.b, self.cheap = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), cheap

    def forward(self, x):
        cheap = self.cheap(self.a(x).tanh())
        return self.b(cheap.sin().to(x.dtype)) if cheap.dtype != self.a.weight.dtype else self.b(cheap)


KINDS = {
    "nn.GELU": nn.GELU,
    "nn.GELU(tanh)": lambda: nn.GELU(approximate="tanh"),
    "nn.SiLU": nn.SiLU,
    "nn.ReLU": nn.ReLU,
    "nn.LayerNorm": lambda: nn.LayerNorm(WIDTH),
    "nn.Dropout": lambda: nn.Dropout(0.3),
    "F.gelu": lambda: Call(F.gelu),
    "F.silu": lambda: Call(F.silu),
    "F.relu": lambda: Call(F.relu),
    "torch.relu": lambda: Call(torch.relu),
    "x.relu()": lambda: Call(lambda x: x.relu()),
    "F.layer_norm": lambda: Call(lambda x: F.layer_norm(x, (WIDTH,))),
    "F.dropout": lambda: Call(lambda x: F.dropout(x, 0.3)),
}
CASTS = {
    "to(bfloat16)": lambda: Call(lambda x: x.to(torch.bfloat16)),
    "to(dtype=float64)": lambda: Call(lambda x: x.to(dtype=torch.float64)),
    "bfloat16()": lambda: Call(lambda x: x.bfloat16()),
    "double()": lambda: Call(lambda x: x.double()),
    "half()": lambda: Call(lambda x: x.half()),
}
SIZES = {"to(bfloat16)": 2, "bfloat16()": 2, "half()": 2}


def keep(mode):
    return tuple(Keep(stage=i, mode=mode) for i in range(STAGES))


def held_after_forward(model, x, around=contextlib.nullcontext):
    """The bytes that wait for backward."""
    with PeakTracker(excluded_tensors(model, x)) as tracker, around():
        output = model(x)
        held = tracker.live
    del output
    return held


def saved_by_dropping(build, mode, around=contextlib.nullcontext):
    """Bytes not held thanks to a mode, after a step that gave the gradients of plain training."""
    torch.manual_seed(0)
    model, x = nn.Sequential(*[Cheap(build()) for _ in range(STAGES)]), torch.randn(64, WIDTH)
    twin, held = copy.deepcopy(model), {}
    for name in ("full", mode):
        with runtime_of(model) as runtime:
            runtime.use(keep(name))
            held[name] = held_after_forward(model, x, around)
            with around():
                got = step(model, (x,))
        with around():
            assert_same_step(got, step(twin, (x,)))
    return held["full"] - held[mode]


@pytest.mark.parametrize("mode", ["drop", "drop+masks"])
@pytest.mark.parametrize("kind", [*KINDS, *CASTS])
def test_exactly_the_cheap_results_are_not_held_and_gradients_are_the_same(kind, mode):
    elements, size = 64 * WIDTH, SIZES.get(kind, 8 if kind in CASTS else 4)
    masks = elements * 4 - torch.get_rng_state().nbytes if "ropout" in kind and mode == "drop+masks" else 0

    assert saved_by_dropping((KINDS | CASTS)[kind], mode) == STAGES * (elements * size + masks)


def bfloat16():
    return torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.parametrize("mode", ["drop", "drop+masks"])
@pytest.mark.parametrize("kind", KINDS)
def test_under_autocast_exactly_the_cheap_results_are_not_held_and_gradients_are_the_same(kind, mode):
    elements = 64 * WIDTH
    masks = elements * 2 - torch.get_rng_state().nbytes if "ropout" in kind and mode == "drop+masks" else 0

    assert saved_by_dropping(KINDS[kind], mode, bfloat16) == STAGES * (elements * 2 + masks)


@pytest.mark.parametrize("kind", ["to(dtype=float64)", "double()"])
def test_under_autocast_a_cast_by_hand_is_not_held_and_gradients_are_the_same(kind):
    assert saved_by_dropping(CASTS[kind], "drop", bfloat16) == STAGES * 64 * WIDTH * 8


def test_a_cheap_result_of_a_function_called_by_keywords_alone_is_held_and_gradients_are_the_same():
    assert saved_by_dropping(lambda: Call(lambda x: F.gelu(input=x)), "drop") == 0


def test_the_peak_of_a_step_falls_by_what_is_not_held():
    torch.manual_seed(0)
    model, x = nn.Sequential(*[Cheap(nn.GELU()) for _ in range(STAGES)]), torch.randn(64, WIDTH)
    peaks = {}
    for mode in ("full", "drop"):
        with runtime_of(model) as runtime:
            runtime.use(keep(mode))
            peaks[mode] = measure_peak(model, lambda: model(x).pow(2).mean().backward(), x)

    # one is made again while the last stage goes backward
    assert peaks["full"] - peaks["drop"] >= (STAGES - 1) * x.nbytes


def test_a_result_whose_input_nobody_holds_is_held_itself():
    """The input of this ReLU would have to be held instead: nothing is won, and nothing is lost."""
    torch.manual_seed(0)
    model, x = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(STAGES)]), torch.randn(4, 8)
    expected, held = step(copy.deepcopy(model), (x,)), {}
    for mode in ("full", "drop"):
        with runtime_of(model) as runtime:
            runtime.use(keep(mode))
            held[mode] = held_after_forward(model, x)
            assert_same_step(step(model, (x,)), expected)

    assert held["drop"] == held["full"]
