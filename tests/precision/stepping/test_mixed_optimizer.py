"""The optimizer by name and gradient: construction, parameters, steps, fallback, statistics."""

import math

import pytest
import torch

from model_checkpoint.precision import MixedPrecisionOptimizer, MixedPrecisionOptions, Precision, StepReason
from model_checkpoint.precision.errors import InvalidArgument, NonFiniteTraining, UnknownParameter

NAN = torch.tensor([math.nan, 1.0])


def make(options=None, **weights):
    optimizer = MixedPrecisionOptimizer(torch.optim.SGD([{"params": []}], lr=0.5), options)
    optimizer.set_parameters(weights or {"w": torch.tensor([1.0, 2.0])})
    return optimizer


def good(optimizer, *values):
    return {"w": torch.tensor(values or (0.25, 0.25)) * optimizer.loss_scale}


def test_a_missing_base_is_refused():
    with pytest.raises(InvalidArgument, match="base optimizer: got None"):
        MixedPrecisionOptimizer(None)


def test_it_starts_in_fp16_with_zero_counters_and_no_fallback():
    optimizer = make()

    assert optimizer.target_precision is Precision.FP16
    assert (optimizer.step_count, optimizer.skipped_steps, optimizer.has_fallback) == (0, 0, False)
    assert optimizer.loss_scale == 65536.0


def test_the_options_object_given_is_the_one_used():
    options = MixedPrecisionOptions.for_bf16()

    optimizer = make(options)

    assert optimizer.options is options
    assert optimizer.target_precision is Precision.BF16
    assert optimizer.training_weights["w"].dtype == torch.bfloat16


@pytest.mark.slow
def test_auto_detected_bf16_is_not_scaled():
    options = MixedPrecisionOptions(auto_detect_precision=True)

    optimizer = make(options)

    assert optimizer.target_precision is options.resolve_precision()
    assert optimizer.scaler.is_enabled == (optimizer.target_precision is Precision.FP16)


def test_none_parameters_are_refused():
    with pytest.raises(InvalidArgument, match="set_parameters: got None"):
        make().set_parameters(None)


def test_both_maps_are_filled_and_apart():
    optimizer = make(a=torch.randn(3), b=torch.randn(2))

    assert set(optimizer.master_weights) == set(optimizer.training_weights) == {"a", "b"}
    assert all(t.dtype == torch.float32 for t in optimizer.master_weights.values())
    assert all(t.dtype == torch.float16 for t in optimizer.training_weights.values())


def test_parameters_can_be_set_again_by_name():
    optimizer = make()

    optimizer.set_parameters({"w": torch.tensor([3.0, 4.0])})

    assert optimizer.master_weights["w"].tolist() == [3.0, 4.0]
    assert optimizer.training_weights["w"].tolist() == [3.0, 4.0]


def test_wrong_names_and_shapes_are_refused_before_anything_changes():
    optimizer = make()

    with pytest.raises(UnknownParameter, match=r"missing \['w'\], unexpected \['v'\]"):
        optimizer.set_parameters({"v": torch.ones(2)})
    with pytest.raises(InvalidArgument, match=r"w: shape is \(3,\), expected \(2,\)"):
        optimizer.set_parameters({"w": torch.ones(3)})

    assert optimizer.master_weights["w"].tolist() == [1.0, 2.0]


def test_parameters_of_the_base_get_the_names_of_the_mapping():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = MixedPrecisionOptimizer(torch.optim.SGD([parameter], lr=0.1))

    optimizer.set_parameters({"mine": parameter})

    assert list(optimizer.master_weights) == ["mine"]


def test_in_fallback_both_maps_are_the_callers_object():
    optimizer = make()
    optimizer.fallback_to_fp32()
    mine = {"w": torch.tensor([5.0, 6.0])}

    optimizer.set_parameters(mine)
    optimizer.step({"w": torch.tensor([0.5, 0.5])})

    assert optimizer.master_weights is mine
    assert optimizer.training_weights is mine
    assert mine["w"].tolist() == pytest.approx([4.75, 5.75])


def test_half_tensors_are_refused_as_fp32_weights_in_fallback():
    optimizer = make()
    optimizer.fallback_to_fp32()

    with pytest.raises(InvalidArgument, match=r"in fallback: w is torch.float16, expected torch.float32"):
        optimizer.set_parameters({"w": torch.ones(2).half()})

    assert optimizer.master_weights is optimizer.training_weights
    assert optimizer.master_weights["w"].tolist() == [1.0, 2.0]


def test_a_step_moves_masters_by_the_true_gradient_and_recasts():
    optimizer = make()

    result = optimizer.step(good(optimizer))

    assert result.applied
    assert result.reason is StepReason.APPLIED
    assert result.scale_used == 65536.0
    assert result.grad_norm == pytest.approx(math.sqrt(0.125))
    assert optimizer.master_weights["w"].tolist() == [0.875, 1.875]
    assert torch.equal(optimizer.training_weights["w"], optimizer.master_weights["w"].half())


def test_small_updates_accumulate_in_the_master_although_the_half_weight_stands_still():
    optimizer = make(w=torch.tensor([1024.0, 1024.0]))

    for _ in range(10):
        optimizer.step({"w": torch.full((2,), 0.02 * optimizer.loss_scale)})

    assert optimizer.master_weights["w"][0].item() == pytest.approx(1023.9, abs=1e-3)


def test_gradients_are_clipped_by_default_and_said_so():
    optimizer = make()

    result = optimizer.step(good(optimizer, 30.0, 40.0))

    assert (result.clipped, optimizer.get_stats().gradient_stats.clip_count) == (True, 1)
    assert result.grad_norm == pytest.approx(50.0)
    assert optimizer.master_weights["w"].tolist() == pytest.approx([1 - 0.3, 2 - 0.4], rel=1e-5)


def test_the_callers_gradients_are_not_changed():
    optimizer = make()
    gradients = good(optimizer)
    before = gradients["w"].clone()

    optimizer.step(gradients)

    assert torch.equal(gradients["w"], before)


def test_missing_gradients_leave_their_weights_alone_and_unknown_names_are_refused():
    optimizer = make(a=torch.ones(2), b=torch.ones(2))

    optimizer.step({"a": torch.full((2,), 0.1 * optimizer.loss_scale), "b": None})

    assert optimizer.master_weights["b"].tolist() == [1.0, 1.0]
    with pytest.raises(UnknownParameter, match="c: no such parameter"):
        optimizer.step({"c": torch.ones(2)})
    with pytest.raises(InvalidArgument, match=r"a: gradient has shape \(3,\), expected \(2,\)"):
        optimizer.step({"a": torch.ones(3)})


def test_none_gradients_are_refused_where_parameters_were_given_by_name():
    with pytest.raises(InvalidArgument, match="step: gradients is None"):
        make().step(None)


def test_fallback_may_come_before_the_parameters():
    optimizer = MixedPrecisionOptimizer(torch.optim.SGD([{"params": []}], lr=0.5))
    optimizer.fallback_to_fp32()
    assert optimizer.master_weights is optimizer.master_weights
    mine = {"w": torch.ones(2)}

    optimizer.set_parameters(mine)

    assert optimizer.master_weights is optimizer.training_weights is mine


def test_a_step_without_any_parameters_is_refused():
    optimizer = MixedPrecisionOptimizer(torch.optim.SGD([{"params": []}], lr=0.1))

    with pytest.raises(InvalidArgument, match="has no parameters"):
        optimizer.step()


def test_nan_gradients_skip_the_step_and_name_the_parameter():
    optimizer = make()

    result = optimizer.step({"w": NAN})

    assert (result.applied, result.reason) == (False, StepReason.OVERFLOW)
    assert (optimizer.step_count, optimizer.skipped_steps) == (1, 1)
    assert [str(o) for o in result.offenders] == ["w: nan (1 NaN, 0 Inf)"]
    assert optimizer.master_weights["w"].tolist() == [1.0, 2.0]
    assert optimizer.loss_scale == 32768.0


def test_two_overflows_in_a_row_fall_back_and_the_third_step_is_in_fp32():
    optimizer = make(MixedPrecisionOptions.for_fp16(max_consecutive_overflows=2))

    results = [optimizer.step({"w": NAN}) for _ in range(3)]

    assert (optimizer.has_fallback, optimizer.step_count, optimizer.skipped_steps) == (True, 3, 3)
    assert results[2].reason is StepReason.NONFINITE_FP32


def test_without_auto_fallback_it_goes_on_skipping():
    optimizer = make(MixedPrecisionOptions.for_fp16(max_consecutive_overflows=2, enable_auto_fallback=False))

    for _ in range(5):
        optimizer.step({"w": NAN})

    assert not optimizer.has_fallback


def test_a_fallen_step_passes_the_gradient_through_and_counts():
    optimizer = make()
    optimizer.fallback_to_fp32()

    result = optimizer.step({"w": torch.tensor([0.5, 0.5])})

    assert (result.applied, result.scale_used, optimizer.step_count) == (True, 1.0, 1)
    assert optimizer.master_weights["w"].tolist() == [0.75, 1.75]


def test_step_parameter_steps_one_and_refuses_blanks():
    optimizer = make()

    for name in (None, "", "  "):
        with pytest.raises(InvalidArgument, match="step_parameter: name is"):
            optimizer.step_parameter(name, torch.ones(2))
    with pytest.raises(InvalidArgument, match="gradient of w is None"):
        optimizer.step_parameter("w", None)
    optimizer.step_parameter("w", torch.ones(2))

    assert optimizer.step_count == 1


def test_step_parameter_counts_in_fallback_too():
    optimizer = make()
    optimizer.fallback_to_fp32()

    optimizer.step_parameter("w", torch.ones(2))

    assert optimizer.step_count == 1


def test_the_loss_is_scaled_unless_fallen_back():
    optimizer, loss = make(), torch.tensor(2.0)

    assert optimizer.scale_loss(loss).item() == 131072.0
    optimizer.fallback_to_fp32()
    assert optimizer.scale_loss(loss) is loss


def test_fallback_is_idempotent_and_makes_both_maps_one():
    optimizer = make()

    optimizer.fallback_to_fp32()
    optimizer.fallback_to_fp32()

    assert optimizer.has_fallback
    assert optimizer.master_weights is optimizer.training_weights
    assert optimizer.session.fallback.groups[0].attempts == 1


def test_fallback_keeps_the_masters_bits():
    weight = torch.tensor([1.0000001, 0.1])
    optimizer = make(w=weight.clone())

    optimizer.fallback_to_fp32()

    assert torch.equal(optimizer.training_weights["w"], weight)


def test_statistics_start_at_zero_and_give_the_skip_rate():
    optimizer = make()
    assert optimizer.get_stats().skip_rate == 0.0

    optimizer.step({"w": NAN})
    optimizer.step(good(optimizer))

    stats = optimizer.get_stats()
    assert (stats.skip_rate, stats.step_count, stats.skipped_steps) == (0.5, 2, 1)
    assert stats.loss_scaler_stats.total_overflows == 1
    assert stats.performance_stats.step_count == 0


def test_reset_zeroes_counters_scaler_and_fallback():
    optimizer = make()
    optimizer.step({"w": NAN})
    optimizer.fallback_to_fp32()

    optimizer.reset()

    assert (optimizer.step_count, optimizer.skipped_steps, optimizer.has_fallback) == (0, 0, False)
    assert optimizer.loss_scale == 65536.0
    assert optimizer.training_weights["w"].dtype == torch.float16


def test_learning_rate_and_zero_grad_reach_the_base():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = MixedPrecisionOptimizer(torch.optim.SGD([parameter], lr=0.5))
    parameter.grad = torch.ones(2)

    optimizer.set_learning_rate(0.125)
    optimizer.zero_grad()

    assert optimizer.learning_rate == 0.125
    assert optimizer.base_optimizer.param_groups[0]["lr"] == 0.125
    assert parameter.grad is None


def test_a_tensor_learning_rate_is_set_in_place():
    rate = torch.tensor(0.5)
    optimizer = MixedPrecisionOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=rate))

    optimizer.set_learning_rate(0.25)

    assert rate.item() == 0.25


def test_severe_overflow_falls_back_and_every_step_is_counted():
    optimizer = make()

    for _ in range(20):
        optimizer.step({"w": NAN})

    assert (optimizer.step_count, optimizer.skipped_steps, optimizer.has_fallback) == (20, 20, True)


def test_fp32_that_stays_non_finite_raises_with_the_report():
    optimizer = make(MixedPrecisionOptions.for_fp16(max_consecutive_overflows=1, max_fp32_failures=3))
    for _ in range(3):
        optimizer.step({"w": NAN})

    with pytest.raises(NonFiniteTraining, match=r"step 4: 3 steps in a row.*w: nan \(1 NaN, 0 Inf\)"):
        optimizer.step({"w": NAN})

    assert optimizer.master_weights["w"].tolist() == [1.0, 2.0]
    assert optimizer.skipped_steps == 4


def test_an_fp32_target_checks_and_raises_too():
    options = MixedPrecisionOptions.for_fp16(precision=Precision.FP32, max_fp32_failures=2)
    optimizer = make(options)

    assert optimizer.step({"w": NAN}).reason is StepReason.NONFINITE_FP32
    with pytest.raises(NonFiniteTraining, match="2 steps in a row"):
        optimizer.step({"w": NAN})


def test_bf16_keeps_the_finite_check():
    optimizer = make(MixedPrecisionOptions.for_bf16())

    result = optimizer.step({"w": torch.tensor([math.inf, 0.0])})

    assert (result.applied, optimizer.loss_scale) == (False, 1.0)
    assert optimizer.get_stats().loss_scaler_stats.total_overflows == 1


def test_two_optimizers_are_independent():
    first, second = make(), make()

    first.step({"w": NAN})

    assert (second.loss_scale, second.step_count) == (65536.0, 0)


def test_monitoring_measures_every_step():
    optimizer = make(MixedPrecisionOptions.for_fp16(enable_performance_monitoring=True))

    for _ in range(3):
        optimizer.step(good(optimizer))

    assert optimizer.get_stats().performance_stats.step_count == 3


def test_zero_gradients_are_a_finite_step():
    optimizer = make()

    result = optimizer.step({"w": torch.zeros(2)})

    assert (result.applied, result.grad_norm) == (True, 0.0)
    assert optimizer.master_weights["w"].tolist() == [1.0, 2.0]
