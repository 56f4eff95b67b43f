"""The executor: every schedule gives the gradients of plain training, bit for bit."""

import copy
import random

import pytest
import torch
from tests.recompute.auto.auto_models import (
    FAMILIES,
    assert_same_step,
    random_schedule,
    runtime_of,
    stages_by_hand,
    step,
)
from torch import nn

from model_checkpoint.recompute.auto.planning.schedule import Keep, Region
from model_checkpoint.recompute.auto.running import region_frame as frame
from model_checkpoint.recompute.auto.running.runtime import Runtime, StageCall, StageFacts

MODES = {"recompute": ("full",), "drop": ("full", "drop"), "masks": ("drop", "drop+masks")}


@pytest.mark.parametrize("stop", ["early", "at the end"])
@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_buffers_and_generators_equal_plain_training(family, modes, stop, monkeypatch):
    if stop == "early":  # small layers are not worth it otherwise
        monkeypatch.setattr(frame, "_WORTH_STOPPING", -1.0)
    torch.manual_seed(1)
    build, make_inputs = FAMILIES[family]
    model, inputs = build(), make_inputs()
    count, rng = len(stages_by_hand(model)), random.Random(family + modes + stop)
    for _ in range(15):
        twin = copy.deepcopy(model)
        schedule = random_schedule(rng, 0, count - 1, MODES[modes])
        expected = step(model, inputs)

        with runtime_of(twin) as runtime:
            runtime.use(schedule)
            got = step(twin, inputs)

        assert_same_step(got, expected)
        model.load_state_dict(twin.state_dict())


@pytest.mark.parametrize("family", FAMILIES)
def test_regions_really_run_again(family):
    """Equal gradients would also come from doing nothing."""
    build, make_inputs = FAMILIES[family]
    model = build()
    count = len(stages_by_hand(model))
    body = tuple(Keep(stage=i) for i in range(count))
    with runtime_of(model) as runtime:
        runtime.use((Region(start=0, stop=count - 1, body=body),))
        step(model, make_inputs())
        layers = runtime.statistics.layers()

    assert all(layers[stage.name].recomputes == 1 for stage in runtime.stages)
    assert sum(record.bytes_saved for record in layers.values()) > 0


class Paired(nn.Module):
    """Takes and returns nested structures, with values that are no tensors among them."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, pair, *, options):
        hidden, extra = pair
        mixed = self.linear(hidden).tanh() * options["scale"]
        return {"pair": (hidden + mixed, extra + mixed.sigmoid()), "note": options["name"]}


class Tower(nn.Module):
    def __init__(self, count=4):
        super().__init__()
        self.layers = nn.ModuleList([Paired() for _ in range(count)])

    def forward(self, x):
        state = {"pair": (x, x.exp())}
        for layer in self.layers:
            state = layer(state["pair"], options={"scale": 0.5, "name": "n"})
        return state["pair"][0] + state["pair"][1]


def test_nested_arguments_and_results_are_put_together_again():
    torch.manual_seed(0)
    model, x = Tower(), torch.randn(3, 8)
    twin, rng = copy.deepcopy(model), random.Random(0)
    stages = [StageCall(i, StageFacts(name=f"layers.{i}"), layer) for i, layer in enumerate(twin.layers)]
    expected = step(model, (x,))
    with Runtime(twin, stages) as runtime:
        for _ in range(10):
            runtime.use(random_schedule(rng, 0, 3, ("full", "drop")))
            assert_same_step(step(twin, (x,)), expected)


def test_a_partial_backward_frees_and_repeats_nothing_wrongly():
    torch.manual_seed(0)
    model, inputs = FAMILIES["mlp"][0](), FAMILIES["mlp"][1]()
    twin = copy.deepcopy(model)

    def last_layer_then_all(model):
        loss = model(*inputs).pow(2).mean()
        (first,) = torch.autograd.grad(loss, model[5][0].weight, retain_graph=True)
        loss.backward()
        return [first, *(p.grad for p in model.parameters())]

    with runtime_of(twin, prefetch=True) as runtime:
        runtime.use(tuple(Region(start=i, stop=i + 1, body=(Keep(stage=i), Keep(stage=i + 1))) for i in (0, 2, 4)))
        got = last_layer_then_all(twin)

    assert all(torch.equal(a, b) for a, b in zip(got, last_layer_then_all(model), strict=True))
