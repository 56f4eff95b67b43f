"""auto_checkpoint keeps its promise: gradients of plain training, within the budget, at every budget."""

import copy

import pytest
import torch
from tests.recompute.auto.auto_models import (
    FAMILIES,
    EncoderDecoder,
    assert_same_step,
    cnn,
    mlp,
    seeded,
    step,
    transformer,
)
from torch import nn

from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.auto.common.budget import parse_budget
from model_checkpoint.recompute.auto.common.errors import AutoCheckpointWarning, BudgetTooSmall
from model_checkpoint.recompute.auto.common.peak import PeakTracker, measure_peak

PATCHED = {"_call_impl", "forward"}


def loss_of(output):
    return output.pow(2).mean()


def train_peak(model, inputs):
    """The peak of a user's own training step, measured independently of the plan."""

    def one():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        loss_of(model(*inputs)).backward()

    return measure_peak(model, one, inputs)


LARGER = {
    "mlp": (lambda: mlp(64, 9), lambda: (torch.randn(64, 64),)),
    "cnn": (lambda: cnn(8, 9), lambda: (torch.randn(2, 3, 16, 16),)),
    "transformer": (lambda: transformer(32, 8), lambda: (torch.randn(2, 32, 32),)),
    "encoder-decoder": (lambda: EncoderDecoder(32, 4), lambda: (torch.randn(2, 24, 32), torch.randn(2, 16, 32))),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", LARGER)
def test_measured_peak_is_within_every_budget_down_to_the_floor_and_monotone(family):
    model, inputs = seeded(LARGER[family])
    plain = train_peak(model, inputs)
    auto_checkpoint(model, 1.0, inputs, loss=loss_of)
    profile, floor = model.plan.profile, model.plan.floor_bytes
    assert model.plan.plain_bytes == plain

    measured = []
    for share in (0.0, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0):
        budget = int(floor + share * (plain - floor))
        auto_checkpoint(model, budget, profile=profile)
        measured.append(train_peak(model, inputs))

        assert measured[-1] <= budget
        assert measured[-1] == model.plan.peak_bytes

    assert measured == sorted(measured)
    assert measured[0] < 0.6 * plain


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_equal_plain_training_at_every_budget(family):
    model, inputs = seeded(FAMILIES[family])
    twin = copy.deepcopy(model)
    auto_checkpoint(twin, 1.0, inputs)
    plan = twin.plan
    for share in (0.0, 0.2, 0.5, 0.8):
        budget = int(plan.floor_bytes + share * (plan.plain_bytes - plan.floor_bytes))
        auto_checkpoint(twin, budget, profile=plan.profile)

        assert_same_step(step(twin, inputs), step(model, inputs))


def test_peak_is_monotone_whatever_the_order_of_asking():
    torch.manual_seed(0)
    model, x = mlp(32, 8), torch.randn(32, 32)
    auto_checkpoint(model, 0.9, x)
    profile, answers = model.plan.profile, {0.9: model.plan.peak_bytes}
    for share in (0.4, 0.7, 0.3, 0.55, 0.35, 0.8):
        auto_checkpoint(model, share, profile=profile)
        answers[share] = model.plan.peak_bytes

    ordered = [answers[share] for share in sorted(answers)]
    assert ordered == sorted(ordered)


def test_an_impossible_budget_is_an_error_that_states_the_floor():
    model, x = mlp(32, 4), torch.randn(32, 32)

    with pytest.raises(BudgetTooSmall, match=r"^memory_budget: 100 bytes is below the floor of \d+ bytes") as caught:
        auto_checkpoint(model, 100, x)

    auto_checkpoint(model, caught.value.floor_bytes, x)
    assert model.plan.peak_bytes <= caught.value.floor_bytes
    assert "plan" not in mlp(32, 4).__dict__


@pytest.mark.slow
def test_profiling_and_calibration_cost_at_most_60_plain_steps():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(384, 384), nn.GELU(), nn.LayerNorm(384)) for _ in range(16)])
    x = torch.randn(512, 384)
    costs = []
    for _ in range(3):
        from time import process_time

        begin = process_time()
        auto_checkpoint(model, 0.4, x)
        costs.append((process_time() - begin) / model.plan.plain_seconds)
        model.plan.remove()

    assert min(costs) <= 60


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2_000_000_000),
        ("2 GiB", 2**31),
        ("1.5kb", 1500),
        ("700 b", 700),
        ("1TiB", 2**40),
        ("512 MiB", 2**29),
        (12345, 12345),
        (0.5, 500),
    ],
)
def test_budgets_are_read_as_written(text, size):
    assert parse_budget(text, plain_peak=1000) == size


@pytest.mark.parametrize("bad", ["2 bananas", "GB", 0, -5, 0.0, 1.5, "0MB"])
def test_a_budget_that_makes_no_sense_is_refused(bad):
    with pytest.raises(ValueError, match=r"^memory_budget: "):
        parse_budget(bad, plain_peak=1000)


def test_a_budget_of_another_type_is_refused():
    with pytest.raises(TypeError, match=r"^memory_budget: got list"):
        parse_budget([1], plain_peak=1)


def test_the_tracker_counts_neither_inputs_nor_views_of_older_tensors():
    table = torch.ones(1000)
    with PeakTracker() as tracker:
        part = table[:10].view(2, 5)

    assert part.shape == (2, 5)
    assert tracker.peak == 0


def test_explain_says_what_happens_to_each_stage():
    torch.manual_seed(0)
    model, x = mlp(32, 8), torch.randn(64, 32)
    auto_checkpoint(model, 0.4, x)

    text = model.plan.explain()

    assert "measured" in text
    assert "predicted" in text
    assert sum(line.startswith("  ") for line in text.splitlines()) == 8
    assert set(model.plan.fates()) <= {"kept", "dropped", "recomputed"}
    assert set(model.plan.fates()) != {"kept"}


class TwoWays(nn.Module):
    """No chain: named modules with skips between them."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2 = nn.Linear(8, 8), nn.Linear(8, 8)
        self.up2, self.up1 = nn.Linear(8, 8), nn.Linear(16, 8)

    def forward(self, x):
        a = self.down1(x).relu()
        b = self.down2(a).relu()
        return self.up1(torch.cat([self.up2(b), a], dim=-1))


def test_a_model_that_is_no_chain_gets_module_regions_and_is_told_so():
    torch.manual_seed(0)
    model, x = TwoWays(), torch.randn(64, 8)
    twin = copy.deepcopy(model)

    with pytest.warns(AutoCheckpointWarning, match=r"^TwoWays: not seen as a chain") as told:
        auto_checkpoint(twin, 1.0, (x,))
    assert [one.filename for one in told] == [__file__]  # the line to change is the caller's
    auto_checkpoint(twin, twin.plan.floor_bytes, profile=twin.plan.profile)

    assert "no chain" in twin.plan.explain()
    assert_same_step(step(twin, (x,)), step(model, (x,)))


@pytest.mark.parametrize("budget", [1.0, "1GB"])
def test_where_plain_training_fits_the_layers_run_as_they_are(budget):
    torch.manual_seed(0)
    model, x = mlp(32, 6), torch.randn(64, 32)
    plain = train_peak(model, (x,))

    auto_checkpoint(model, budget, x, prefetch=True)

    assert model.plan.plain
    assert set(model.plan.fates()) == {"kept"}
    assert [name for name, module in model.named_modules() if module.__dict__.keys() & PATCHED] == [""]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.is_tensor(model(x).grad_fn._saved_input)  # autograd holds the tensor itself: no hook packed it
    assert model.plan.peak_bytes == plain == train_peak(model, (x,))
    with pytest.warns(AutoCheckpointWarning, match=r"^input: "):
        model(torch.randn(128, 32))
    model.plan.remove()
    assert not any(module.__dict__.keys() & PATCHED for module in model.modules())
