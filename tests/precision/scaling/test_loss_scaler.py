"""The loss scaler: every rule of its update, and agreement with two independent models."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model_checkpoint.precision.errors import InvalidArgument
from model_checkpoint.precision.scaling.scaler import DynamicLossScaler, ScaleMove, ScalerState, advance, find_problems
from model_checkpoint.precision.settings.precision_options import HysteresisRefill, MixedPrecisionOptions


def make(**changes):
    return DynamicLossScaler(MixedPrecisionOptions.for_fp16(**changes))


def test_a_new_scaler_is_at_its_initial_scale_with_zero_counters():
    scaler = DynamicLossScaler()

    assert (scaler.current_scale, scaler.is_enabled) == (65536.0, True)
    assert (scaler.consecutive_overflows, scaler.total_overflows, scaler.steps_since_last_overflow) == (0, 0, 0)


def test_none_options_are_refused():
    with pytest.raises(InvalidArgument, match="options is None"):
        DynamicLossScaler(None)


def test_the_loss_is_multiplied_by_the_scale():
    assert make(initial_loss_scale=8.0).scale_loss(torch.tensor(0.5)).item() == 4.0


def test_a_half_loss_is_widened_so_that_the_product_cannot_overflow():
    scaled = make().scale_loss(torch.tensor(2.0, dtype=torch.float16))

    assert (scaled.dtype, scaled.item()) == (torch.float32, 131072.0)


@pytest.mark.parametrize("method", ["scale_loss", "unscale_gradients", "check_overflow", "check_overflow_and_update"])
def test_none_is_refused_everywhere(method):
    with pytest.raises(InvalidArgument, match="is None"):
        getattr(make(), method)(None)


def test_unscaling_by_a_power_of_two_is_exact():
    gradient = torch.randn(1000)

    unscaled = make().unscale_gradients({"w": gradient * 65536})

    assert torch.equal(unscaled["w"], gradient)


@pytest.mark.parametrize(("bad", "found"), [(math.nan, True), (math.inf, True), (-math.inf, True), (1.0, False)])
def test_overflow_is_found_in_any_gradient(bad, found):
    assert make().check_overflow({"a": torch.ones(2), "b": torch.tensor([0.0, bad])}) is found


def test_an_overflow_lowers_the_scale_and_asks_to_skip():
    scaler = make(initial_loss_scale=8.0)

    assert scaler.update_scale(True) is True
    assert (scaler.current_scale, scaler.consecutive_overflows, scaler.total_overflows) == (4.0, 1, 1)


def test_success_counts_and_does_not_skip():
    scaler = make()
    scaler.update_scale(True)

    assert scaler.update_scale(False) is False
    assert (scaler.consecutive_overflows, scaler.total_overflows, scaler.steps_since_last_overflow) == (0, 1, 1)


def test_the_scale_grows_after_the_interval_and_the_steps_count_on():
    scaler = make(initial_loss_scale=4.0, growth_interval=3)

    for _ in range(4):
        scaler.update_scale(False)

    assert (scaler.current_scale, scaler.growth_tracker, scaler.steps_since_last_overflow) == (8.0, 1, 4)


def test_the_scale_stops_at_its_limits():
    floor, ceiling = make(initial_loss_scale=2.0), make(initial_loss_scale=9e8, growth_interval=1)

    for _ in range(5):
        floor.update_scale(True)
        ceiling.update_scale(False)

    assert (floor.current_scale, floor.get_stats().floor_hits) == (1.0, 4)
    assert ceiling.current_scale == 1e9


@pytest.mark.parametrize(("scale", "move"), [(4.0, ScaleMove.GREW), (8.0, ScaleMove.KEPT)])
def test_a_scale_at_its_ceiling_did_not_grow(scale, move):
    chosen = MixedPrecisionOptions.for_fp16(initial_loss_scale=4.0, max_loss_scale=8.0, growth_interval=1)

    after, seen = advance(ScalerState(scale=scale), False, chosen)

    assert (after.scale, seen) == (8.0, move)


def test_disabled_passes_everything_through_and_only_counts():
    scaler = make(enable_dynamic_loss_scaling=False)
    loss, bad = torch.tensor(2.0), {"w": torch.tensor([math.nan])}

    assert scaler.scale_loss(loss) is loss
    assert torch.equal(scaler.unscale_gradients({"w": loss})["w"], loss)
    assert scaler.check_overflow(bad) is False
    assert scaler.update_scale(True) is False
    assert (scaler.current_scale, scaler.active_scale, scaler.is_enabled) == (65536.0, 1.0, False)


def test_bf16_is_never_scaled():
    scaler = DynamicLossScaler(MixedPrecisionOptions.for_bf16(enable_dynamic_loss_scaling=True))

    assert (scaler.active_scale, scaler.is_enabled) == (1.0, False)


def test_check_and_update_does_both():
    scaler = make()

    assert scaler.check_overflow_and_update({"w": torch.tensor([math.inf])}) is True
    assert scaler.current_scale == 32768.0


def test_losses_are_forgotten_at_each_update():
    scaler = DynamicLossScaler()
    loss = torch.ones(())
    bad = torch.tensor(math.nan)
    scaler.scale_loss(bad)
    assert scaler.saw_bad_loss

    scaler.update_scale(False)
    scaler.scale_loss(loss)

    assert not scaler.saw_bad_loss


@pytest.mark.parametrize("loss", [3.0, [1.0]])
def test_a_loss_that_is_no_tensor_is_refused(loss):
    with pytest.raises(InvalidArgument, match=rf"scale_loss: loss is a {type(loss).__name__}, expected a tensor"):
        DynamicLossScaler().scale_loss(loss)


def test_stability_ends_when_overflows_in_a_row_reach_the_limit():
    scaler = make(max_consecutive_overflows=2)
    scaler.update_scale(True)
    assert scaler.get_stats().is_stable

    scaler.update_scale(True)

    assert not scaler.get_stats().is_stable


def test_reset_starts_over():
    scaler = make()
    scaler.update_scale(True)

    scaler.reset()

    assert scaler.state == make().state


def test_state_survives_its_dictionary():
    scaler, other = make(growth_interval=5, hysteresis=3), make(growth_interval=5, hysteresis=3)
    for overflow in (False, True, False, True, False, False):
        scaler.update_scale(overflow)

    other.load_state_dict(scaler.state_dict())

    assert other.state == scaler.state
    assert other.get_stats() == scaler.get_stats()


def test_a_state_with_other_fields_is_refused_by_name():
    with pytest.raises(InvalidArgument, match=r"missing \['consecutive_overflows'.*unknown \['_growth_tracker'\]"):
        make().load_state_dict({"scale": 4.0, "_growth_tracker": 3})


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (ScalerState(scale=math.inf), "scale is inf"),
        (ScalerState(scale=0.25), "scale is 0.25"),
        (ScalerState(scale=4.0, growth_tracker=2000, steps_since_overflow=2000), "growth_tracker is 2000"),
        (ScalerState(scale=4.0, hysteresis_left=2), "hysteresis_left is 2"),
        (ScalerState(scale=4.0, consecutive_overflows=1), "exceeds total_overflows"),
        (ScalerState(scale=4.0, total_overflows=-1), "counters are"),
        (ScalerState(scale=4.0, growth_tracker=2, steps_since_overflow=1), "exceeds steps_since_overflow"),
    ],
)
def test_an_impossible_state_is_refused_with_its_reason(state, problem):
    assert any(problem in one for one in find_problems(state, MixedPrecisionOptions()))

    with pytest.raises(InvalidArgument, match="scaler state: "):
        make().restore_state(state)


def test_hysteresis_tolerates_overflows_before_lowering():
    scaler = make(initial_loss_scale=64.0, hysteresis=3)

    scales = []
    for _ in range(4):
        scaler.update_scale(True)
        scales.append(scaler.current_scale)

    assert scales == [64.0, 64.0, 32.0, 16.0]


def test_a_shared_scaler_moves_once_after_all_members_reported():
    scaler, first, second = make(initial_loss_scale=8.0), DynamicLossScaler(), DynamicLossScaler()
    scaler.join(first)
    scaler.join(second)

    assert scaler.report(first, had_overflow=True) is None
    assert (scaler.current_scale, scaler.has_open_window) == (8.0, True)
    assert scaler.report(second, had_overflow=False) is not None
    assert (scaler.current_scale, scaler.total_overflows) == (4.0, 1)


class Model:
    """The rules written a second time, straight from their description, over a list of all past verdicts."""

    def __init__(self, *, hysteresis, refill, interval, low, high, initial):
        self.h, self.refill, self.interval = hysteresis, refill, interval
        self.low, self.high = low, high
        self.scale, self.left, self.run, self.past, self.floor = initial, hysteresis, 0, [], 0

    def see(self, overflow):
        self.past.append(overflow)
        if overflow:
            self.run = 0
            self.left -= 1
            if self.left > 0:
                return
            self.left = self.h if self.refill is HysteresisRefill.BACKOFF else 1
            self.floor += self.scale == self.low
            self.scale = max(self.low, self.scale / 2)
            return
        self.run += 1
        if self.refill is HysteresisRefill.SUCCESS:
            self.left = self.h
        if self.run == self.interval:
            self.run, self.left = 0, self.h
            self.scale = min(self.high, self.scale * 2)

    def streak(self, wanted):
        length = 0
        for verdict in reversed(self.past):
            if verdict is not wanted:
                break
            length += 1
        return length


@settings(max_examples=150, deadline=None)
@given(
    verdicts=st.lists(st.booleans(), max_size=120),
    hysteresis=st.integers(1, 4),
    refill=st.sampled_from(list(HysteresisRefill)),
    interval=st.integers(1, 6),
)
def test_any_sequence_of_verdicts_agrees_with_an_independent_model(verdicts, hysteresis, refill, interval):
    scaler = make(
        initial_loss_scale=16.0, max_loss_scale=1024.0, growth_interval=interval,
        hysteresis=hysteresis, hysteresis_refill=refill,
    )  # fmt: skip
    model = Model(hysteresis=hysteresis, refill=refill, interval=interval, low=1.0, high=1024.0, initial=16.0)

    for overflow in verdicts:
        assert scaler.update_scale(overflow) is overflow
        model.see(overflow)

        assert scaler.current_scale == model.scale
        assert scaler.growth_tracker == model.run
        assert scaler.state.hysteresis_left == model.left
        assert scaler.consecutive_overflows == model.streak(True)
        assert scaler.steps_since_last_overflow == model.streak(False)
        assert scaler.total_overflows == sum(model.past)
        assert scaler.state.floor_hits == model.floor
        assert find_problems(scaler.state, scaler.options) == []


@settings(max_examples=60, deadline=None)
@given(verdicts=st.lists(st.booleans(), max_size=60), interval=st.integers(1, 5))
def test_any_sequence_agrees_with_torch_grad_scaler(verdicts, interval):
    ours = make(initial_loss_scale=2.0**16, max_loss_scale=2.0**120, min_loss_scale=2.0**-120, growth_interval=interval)
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=interval)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    theirs.scale(torch.zeros(()))

    for overflow in verdicts:
        parameter.grad = torch.tensor([math.inf if overflow else 1.0])
        theirs.step(optimizer)
        theirs.update()
        ours.update_scale(overflow)

        assert ours.current_scale == theirs.get_scale()
        assert ours.growth_tracker == theirs.state_dict()["_growth_tracker"]
