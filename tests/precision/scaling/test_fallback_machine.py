"""Fallback: the pure machine against its description, and what it does to a running model."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.precision.precision_models import build, loss_of, options, train, wrap

from model_checkpoint.precision import MixedPrecisionOptimizer, MixedPrecisionOptions, StepReason
from model_checkpoint.precision.errors import NonFiniteTraining
from model_checkpoint.precision.scaling.fallback import (
    FallbackState,
    GroupMode,
    GroupState,
    Skip,
    after_applied,
    after_skip,
    fall,
    spread,
)

CHOSEN = MixedPrecisionOptions.for_fp16(max_consecutive_overflows=2, recovery_steps=3, max_recoveries=2)


def drive(events, groups=1, chosen=CHOSEN):
    """Feed 'a' (applied) or a set of blamed groups; returns the modes after each event."""
    state, history = FallbackState(groups=(GroupState(),) * groups), []
    for event in events:
        if event == "a":
            state, change = after_applied(state, chosen)
        else:
            reduced = {place for place, group in enumerate(state.groups) if not group.is_fp32}
            state, change = after_skip(state, Skip(blamed=event, reduced=reduced), chosen)
        history.append(("".join(group.mode.value[0] for group in state.groups), change))
    return state, history


def test_two_skips_in_a_row_fall_and_one_success_between_prevents_it():
    _, together = drive([{0}, {0}])
    _, apart = drive([{0}, "a", {0}])

    assert together[-1][0] == "f"
    assert apart[-1][0] == "l"


def test_only_the_groups_to_blame_fall():
    _, history = drive([{1}, {1, 2}], groups=4)

    assert history[-1][0] == "lffl"
    assert history[-1][1].fell == (1, 2)


def test_a_group_already_in_fp32_does_not_fall_again():
    """A second fall would cost it one of its ways back."""
    fallen = GroupState(mode=GroupMode.FP32, attempts=1, clean_steps=2, offences=1)
    state, change = fall(FallbackState(groups=(fallen, GroupState())), {0, 1})

    assert change.fell == (1,)
    assert state.groups == (
        GroupState(mode=GroupMode.FP32, attempts=1, clean_steps=2),
        GroupState(mode=GroupMode.FP32, attempts=1),
    )


def test_groups_in_different_modes_are_restored_as_they_were():
    mixed = FallbackState(groups=(GroupState(mode=GroupMode.FP32, attempts=1), GroupState()))

    assert spread(mixed, 2) is mixed
    assert spread(mixed, 3).fp32_groups == {0, 1, 2}


def test_clean_steps_lead_to_probation_and_then_to_trust():
    state, history = drive([{0}, {0}, *"aaaaaa"])

    assert "".join(modes for modes, _ in history) == "lfffpppl"
    assert state.groups[0] == GroupState()
    assert history[4][1].returned == (0,)
    assert history[7][1].trusted == (0,)


def test_a_fall_in_probation_doubles_the_clean_steps_needed():
    _, history = drive([{0}, {0}, *"aaa", {0}, {0}, *"aaaaaa"])

    assert "".join(modes for modes, _ in history) == "lfffp" + "pf" + "fffffp"


def test_after_the_last_attempt_a_group_stays_in_fp32():
    falls = [{0}, {0}]
    _, history = drive([*falls, *"aaa", *falls, *"aaaaaa", *falls, *("a" * 100)])

    assert history[-1][0] == "f"
    assert sum(len(change.returned) for _, change in history) == 2


def test_recovery_can_be_switched_off():
    _, history = drive([{0}, {0}, *("a" * 50)], chosen=MixedPrecisionOptions.for_fp16(
        max_consecutive_overflows=2, recovery_steps=0))  # fmt: skip

    assert history[-1][0] == "f"


def test_failures_that_fp32_cannot_cure_exhaust_patience():
    chosen = MixedPrecisionOptions.for_fp16(max_consecutive_overflows=1, max_fp32_failures=3)

    _, history = drive([{0}, {0}, {0}, {0}], chosen=chosen)

    assert [change.exhausted for _, change in history] == [False, False, False, True]


def test_patience_is_counted_anew_after_a_failure_that_fp32_may_cure():
    failing = FallbackState(groups=(GroupState(),), fp32_failures=2)

    state, change = after_skip(failing, Skip(blamed={0}, reduced={0}), CHOSEN)

    assert (state.fp32_failures, change.exhausted) == (0, False)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.one_of(st.just("a"), st.sets(st.integers(0, 2), min_size=1)), max_size=60))
def test_any_history_keeps_the_machine_consistent_and_survives_its_tree(events):
    state, history = drive(events, groups=3)

    assert FallbackState.from_tree(state.to_tree()) == state
    for _, change in history:
        assert not set(change.fell) & set(change.returned)
    for group in state.groups:
        assert group.mode is not GroupMode.PROBATION or group.attempts >= 1
        assert group.attempts <= CHOSEN.max_recoveries + 1


def test_a_fallen_model_computes_in_fp32_with_the_masters_and_comes_back():
    model = build()
    optimizer = wrap(model, chosen=options(max_consecutive_overflows=2, recovery_steps=4))
    dtypes = []

    train(model, optimizer, range(14), spoil={3, 4}, after=lambda _: dtypes.append(model.mix.weight.dtype))

    assert dtypes == [torch.float16] * 4 + [torch.float32] * 4 + [torch.float16] * 6
    assert optimizer.skipped_steps == 2
    events = [event.event for event in optimizer.session.timeline]
    assert [e for e in events if e in ("fallback", "return", "trusted")] == ["fallback", "return", "trusted"]


def test_the_scale_is_one_in_full_fallback_and_halves_on_return():
    model = build()
    optimizer = wrap(model, chosen=options(max_consecutive_overflows=2, recovery_steps=4, growth_interval=1000))
    scales = []

    train(model, optimizer, range(10), spoil={3, 4}, after=lambda _: scales.append(optimizer.loss_scale))

    assert scales == [1024.0] * 3 + [512.0] + [1.0] * 4 + [128.0] * 2


def test_only_the_affected_group_changes_its_precision():
    model = build()
    groups = [{"params": list(model.mix.parameters())}, {"params": [*model.out.parameters(), *model.norm.parameters()]}]
    optimizer = wrap(model, lambda _: torch.optim.SGD(groups, lr=0.01), options(max_consecutive_overflows=2))

    for _ in range(2):
        optimizer.zero_grad()
        optimizer.backward(loss_of(model, 0))
        model.mix.weight.grad[0, 0] = math.inf
        result = optimizer.step()

    assert [offender.name for offender in result.offenders] == ["mix.weight"]
    assert (model.mix.weight.dtype, model.out.weight.dtype) == (torch.float32, torch.float16)
    assert optimizer.has_fallback
    assert optimizer.loss_scale != 1.0  # the other group still needs it
    train(model, optimizer, range(3))
    assert optimizer.skipped_steps == 2


def test_a_weight_and_bias_in_different_groups_still_compute_in_one_dtype():
    model = torch.nn.Linear(4, 4)
    groups = [{"params": [model.weight]}, {"params": [model.bias]}]
    optimizer = wrap(model, lambda _: torch.optim.SGD(groups, lr=0.1), options(max_consecutive_overflows=1))
    optimizer.backward(model(torch.ones(2, 4)).sum())
    model.weight.grad[0] = math.nan

    optimizer.step()

    assert model.weight.dtype == model.bias.dtype == torch.float32
    assert model(torch.ones(2, 4)).dtype == torch.float32
    assert [group.mode for group in optimizer.session.fallback.groups] == [GroupMode.FP32, GroupMode.LOW]


def test_masters_too_large_for_fp16_keep_their_group_in_fp32_for_good():
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = wrap(
        model, lambda p: torch.optim.SGD(p, lr=1.0), options(max_consecutive_overflows=1, recovery_steps=2)
    )
    optimizer.fallback_to_fp32()
    optimizer.set_parameters({"weight": torch.tensor([[70000.0, 1.0]])})

    for _ in range(6):
        optimizer.step({"weight": torch.zeros(1, 2)})

    assert model.weight.dtype == torch.float32
    assert optimizer.session.fallback.groups[0].attempts == CHOSEN.max_recoveries + 2
    assert [e.event for e in optimizer.session.timeline] == ["fallback", "settled"]


@pytest.mark.parametrize(("largest", "dtype"), [(65504.0, torch.float16), (65536.0, torch.float32)])
def test_a_group_returns_with_the_largest_number_half_has_and_no_larger_one(largest, dtype):
    weights = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.empty(0))]
    optimizer = MixedPrecisionOptimizer(torch.optim.SGD(weights, lr=1.0), options(recovery_steps=1))
    optimizer.fallback_to_fp32()
    optimizer.set_parameters({"group0.param0": torch.tensor([1.0, -largest]), "group0.param1": torch.empty(0)})

    optimizer.step({"group0.param0": torch.zeros(2)})

    assert weights[0].dtype == dtype


def test_what_stays_in_fp32_anyway_keeps_no_group_there():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2), torch.nn.LayerNorm(2))
    groups = [{"params": [*model[0].parameters(), *model[1].parameters()]}, {"params": model[2].parameters()}]
    optimizer = wrap(model, lambda _: torch.optim.SGD(groups, lr=1.0), options(recovery_steps=1))
    optimizer.session.enter(*fall(optimizer.session.fallback, {0}))
    with torch.no_grad():
        model[1].weight.fill_(1e6)
        model[2].weight.fill_(1e6)
    optimizer.scale_loss(torch.ones(()))

    optimizer.step()

    assert [group.mode for group in optimizer.session.fallback.groups] == [GroupMode.PROBATION, GroupMode.LOW]
    assert [e.event for e in optimizer.session.timeline] == ["fallback", "return"]
    assert model[0].weight.dtype == torch.float16


def test_a_group_that_returns_beside_one_that_never_fell_keeps_the_scale():
    model = build()
    groups = [{"params": list(model.mix.parameters())}, {"params": list(model.out.parameters())}]
    optimizer = wrap(model, lambda _: torch.optim.SGD(groups, lr=0.01), options(recovery_steps=1))
    optimizer.session.enter(*fall(optimizer.session.fallback, {0}))

    train(model, optimizer, range(1))

    assert not optimizer.has_fallback
    assert optimizer.loss_scale == 1024.0


def test_never_is_a_nan_applied_however_long_it_lasts():
    model = build()
    optimizer = wrap(model, chosen=options(max_consecutive_overflows=3, max_fp32_failures=5))
    before = {name: weight.clone() for name, weight in optimizer.master_weights.items()}

    def go_on():
        for _ in range(100):
            optimizer.zero_grad()
            optimizer.backward(loss_of(model, 0) * math.nan)
            optimizer.step()

    with pytest.raises(NonFiniteTraining, match="FP32 cannot cure it"):
        go_on()

    assert optimizer.step_count == 3 + 5
    assert optimizer.last_result.reason is StepReason.BAD_LOSS
    assert all(torch.equal(weight, before[name]) for name, weight in optimizer.master_weights.items())
