"""The executor: every schedule gives the gradients of plain training, bit for bit."""

import copy
import random
import weakref

import pytest
import torch
from tests.recompute.auto.auto_models import (
    FAMILIES,
    assert_same_step,
    random_schedule,
    runtime_of,
    seeded,
    stages_by_hand,
    step,
)
from torch import nn

from model_checkpoint.recompute.auto.common.errors import RecomputeDiverged
from model_checkpoint.recompute.auto.planning.schedule import Keep, Region
from model_checkpoint.recompute.auto.running import region_frame as frame
from model_checkpoint.recompute.auto.running.runtime import Runtime
from model_checkpoint.recompute.auto.running.stage_call import StageCall, StageFacts

MODES = {"recompute": ("full",), "drop": ("full", "drop"), "masks": ("drop", "drop+masks")}


@pytest.mark.parametrize("stop", ["early", "at the end"])
@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_buffers_and_generators_equal_plain_training(family, modes, stop, monkeypatch):
    if stop == "early":  # small layers are not worth it otherwise
        monkeypatch.setattr(frame, "_WORTH_STOPPING", -1.0)
    model, inputs = seeded(FAMILIES[family], seed=1)
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


class CallsAutograd(nn.Module):
    """A layer that walks a graph of its own in its forward."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        inner = self.linear(x).tanh()
        (gradient,) = torch.autograd.grad(inner.sum(), self.linear.weight, create_graph=True)
        return inner + gradient.sum()


def test_a_layer_that_calls_autograd_in_its_forward_is_refused_by_name():
    """The region is still open then: half of it cannot be run again."""
    model, x = nn.Sequential(CallsAutograd(), nn.Linear(8, 8)), torch.randn(4, 8)
    with runtime_of(model) as runtime:
        runtime.use((Region(start=0, stop=0, body=(Keep(stage=0),)), Keep(stage=1)))

        with pytest.raises(RecomputeDiverged, match=r"^0: backward was called inside the forward of this region"):
            model(x)

        assert runtime.statistics.layers()["0"].recomputes == 0


class WithExtra(nn.Module):
    """Returns a second tensor that nobody takes, first or last."""

    def __init__(self, place):
        super().__init__()
        self.linear, self.place, self.watch = nn.Linear(8, 8), place, None

    def forward(self, x):
        result, extra = self.linear(x).tanh(), x * 2
        self.watch = weakref.ref(extra)
        return (extra, result) if self.place == "first" else (result, extra)


class TakesOne(nn.Module):
    """Takes the useful one of two tensors, and looks whether the other is alive."""

    def __init__(self, before):
        super().__init__()
        self.linear, self.seen = nn.Linear(8, 8), []
        self.__dict__["before"] = before  # not a submodule

    def forward(self, x):
        self.seen.append(self.before.watch() is not None)
        return self.linear(x).tanh()


class Pair(nn.Module):
    """Hands on one of the two tensors of its first layer."""

    def __init__(self, place):
        super().__init__()
        self.first = WithExtra(place)
        self.second = TakesOne(self.first)

    def forward(self, x):
        return self.second(self.first(x)[1 if self.first.place == "first" else 0])


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_second_run_lets_go_of_what_no_later_layer_reads(place):
    """Memory: an output that only the first run had a use for must not be held while the rest runs."""
    model, x = Pair(place), torch.randn(4, 8)
    stages = [StageCall(i, StageFacts(name=n), m) for i, (n, m) in enumerate(model.named_children())]
    with Runtime(model, stages) as runtime:
        runtime.use((Region(start=0, stop=1, body=(Keep(stage=0), Keep(stage=1))),))
        loss = model(x).sum()
        model.second.seen.clear()
        loss.backward()

    assert model.second.seen == [False]
