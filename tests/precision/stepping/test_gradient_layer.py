"""Gradients: the finite check, provenance, unscaling, clipping; and the step clock."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model_checkpoint.precision.errors import InvalidArgument, StepRefused
from model_checkpoint.precision.gradients import finite
from model_checkpoint.precision.gradients.conversion import GradientConversionLayer
from model_checkpoint.precision.gradients.finite import judge_gradients, name_offenders
from model_checkpoint.precision.scaling.scaler import DynamicLossScaler
from model_checkpoint.precision.settings.precision_manager import PrecisionManager
from model_checkpoint.precision.settings.precision_options import MixedPrecisionOptions
from model_checkpoint.precision.stepping import monitor as monitoring
from model_checkpoint.precision.stepping.monitor import PerformanceMonitor


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_norm_is_true_to_float64(dtype):
    gradients = [torch.randn(shape).to(dtype) for shape in [(3,), (400, 1000), ()]]

    verdict = judge_gradients(gradients)

    reference = torch.cat([g.double().reshape(-1) for g in gradients]).norm().item()
    assert verdict.norm == pytest.approx(reference, rel=1e-5)


def test_an_offender_is_plain_values_in_a_tree():
    gradients = [torch.tensor([math.nan])]

    (offender,) = name_offenders(["w"], gradients, judge_gradients(gradients))

    assert offender.to_tree() == {"name": "w", "kind": "nan", "nan_count": 1, "inf_count": 0, "exact": True}
    assert str(offender) == "w: nan (1 NaN, 0 Inf)"


def test_the_layer_scales_a_loss_by_what_it_takes_off_the_gradients():
    layer = GradientConversionLayer(MixedPrecisionOptions.for_fp16(initial_loss_scale=8.0, max_grad_norm=0.0))

    assert layer.scale_loss(torch.tensor(3.0)) == 24.0
    assert layer.process_gradients({"w": torch.tensor([24.0])})[0]["w"].tolist() == [3.0]


def test_a_half_norm_beyond_65504_is_not_an_overflow():
    gradient = torch.full((1_000_000,), 300.0, dtype=torch.float16)

    verdict = judge_gradients([gradient])

    assert verdict.is_finite
    assert verdict.norm == pytest.approx(300_000, rel=1e-4)


def test_squares_that_overflow_are_not_an_overflow_of_the_gradients():
    gradient = torch.full((4,), 3e38)

    verdict = judge_gradients([gradient, torch.ones(1)])

    assert verdict.is_finite
    assert verdict.norm == pytest.approx(6e38, rel=1e-6)


def test_norms_of_which_several_overflow_add_up_by_their_squares():
    gradients = [torch.full((1,), 3e30), torch.full((2, 2), 2e30), torch.ones(3), torch.full((1,), 12e30)]

    verdict = judge_gradients(gradients)

    assert verdict.is_finite
    assert verdict.norm == pytest.approx(13e30, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_large_gradient_that_lies_across_is_judged_after_a_small_one(dtype):
    across = torch.ones(600, 500, dtype=dtype).t()

    assert judge_gradients([torch.ones(3, dtype=dtype), across]).norm == pytest.approx(math.sqrt(300_003), rel=1e-6)
    across[-1, -1] = math.inf
    assert judge_gradients([torch.ones(3, dtype=dtype), across]).bad == (1,)


def test_the_norm_of_what_broke_is_inf_unless_there_is_a_nan():
    inf, nan = torch.tensor([1.0, math.inf]), torch.tensor([math.nan])

    assert judge_gradients([torch.ones(1), inf]).norm == math.inf
    assert math.isnan(judge_gradients([inf, nan, inf]).norm)
    assert judge_gradients([inf, nan, torch.ones(1), inf]).bad == (0, 1, 3)


def test_no_gradients_have_norm_zero():
    assert judge_gradients([]).norm == 0.0


def test_offenders_are_named_with_kind_and_exact_counts():
    gradients = [torch.ones(5), torch.tensor([math.nan, math.nan, 1.0]), torch.tensor([math.inf, math.nan, -math.inf])]

    offenders = name_offenders(["a", "b", "c"], gradients, judge_gradients(gradients))

    assert [(o.name, o.kind, o.nan_count, o.inf_count, o.exact) for o in offenders] == [
        ("b", "nan", 2, 0, True),
        ("c", "nan+inf", 1, 2, True),
    ]


def test_counting_stops_at_the_cap_but_every_offender_is_named():
    gradients = [torch.full((finite.COUNTED_ELEMENTS // 2 + 1,), math.inf, dtype=torch.bfloat16) for _ in range(20)]

    offenders = name_offenders([str(i) for i in range(20)], gradients, judge_gradients(gradients))

    assert len(offenders) == 20
    assert [o.exact for o in offenders[:3]] == [True, False, False]
    assert sum(o.inf_count for o in offenders) == finite.COUNTED_ELEMENTS
    assert all(o.kind == "inf" for o in offenders)


def test_the_first_eight_offenders_are_counted_and_the_others_named_by_kind():
    gradients = [torch.tensor([math.nan if place % 2 else math.inf]) for place in range(10)]

    offenders = name_offenders([str(i) for i in range(10)], gradients, judge_gradients(gradients))

    assert [o.exact for o in offenders] == [True] * 8 + [False] * 2
    assert [o.nan_count + o.inf_count for o in offenders] == [1] * 8 + [0] * 2
    assert [o.kind for o in offenders] == ["inf", "nan"] * 5
    assert str(offenders[9]) == "9: nan (at least 0 NaN, 0 Inf)"


@pytest.mark.parametrize(("elements", "exact"), [(1 << 18, True), ((1 << 18) + 1, False)])
def test_bad_elements_are_counted_up_to_a_quarter_of_a_million(elements, exact):
    gradient = torch.full((elements,), math.inf)

    (offender,) = name_offenders(["w"], [gradient], judge_gradients([gradient]))

    assert (offender.inf_count, offender.exact) == (1 << 18, exact)


def test_a_large_gradient_with_one_bad_place_is_counted_exactly_wherever_it_is():
    gradient = torch.zeros(3 * finite.PIECE_ELEMENTS + 5)
    gradient[-1], gradient[-2] = math.inf, math.nan

    (offender,) = name_offenders(["w"], [gradient], judge_gradients([gradient]))

    assert (offender.nan_count, offender.inf_count, offender.exact) == (1, 1, True)


values = st.floats(width=16, allow_nan=True, allow_infinity=True)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(values, min_size=1, max_size=9), min_size=1, max_size=5), st.booleans())
def test_the_verdict_is_the_plain_definition_of_finite(rows, half):
    gradients = [torch.tensor(row, dtype=torch.float16 if half else torch.float32) for row in rows]

    verdict = judge_gradients(gradients)

    assert verdict.bad == tuple(i for i, row in enumerate(rows) if not all(map(math.isfinite, row)))
    for offender in name_offenders([str(i) for i in range(len(rows))], gradients, verdict):
        row = rows[int(offender.name)]
        assert offender.nan_count == sum(map(math.isnan, row))
        assert offender.inf_count == sum(map(math.isinf, row))


def layer(**changes):
    return GradientConversionLayer(MixedPrecisionOptions.for_fp16(**changes))


def test_a_layer_uses_the_scaler_and_the_manager_it_is_given():
    class Noting(PrecisionManager):
        def convert_to_fp32(self, tensor):
            seen.extend(tensor)
            return super().convert_to_fp32(tensor)

    seen, chosen = [], MixedPrecisionOptions.for_fp16(initial_loss_scale=4.0)
    scaler = DynamicLossScaler(chosen)
    one = GradientConversionLayer(chosen, scaler, Noting(chosen))

    one.process_gradients({"w": torch.tensor([math.nan])})
    one.process_gradients({"w": torch.ones(1)})

    assert (scaler.total_overflows, one.loss_scale, scaler.current_scale) == (1, 2.0, 2.0)
    assert seen == ["w"]


def test_gradients_are_unscaled_by_the_scale_that_was_used_even_when_it_grows():
    one = layer(initial_loss_scale=4.0, growth_interval=1, max_grad_norm=0.0)

    gradients, skip = one.process_gradients({"w": torch.tensor([8.0], dtype=torch.float16)})

    assert (gradients["w"].item(), gradients["w"].dtype, skip) == (2.0, torch.float32, False)
    assert one.loss_scale == 8.0


def test_the_true_norm_is_clipped_not_the_scaled_one():
    one = layer(initial_loss_scale=1024.0, max_grad_norm=1.0)
    true = {"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}

    gradients, _ = one.process_gradients({name: g * 1024 for name, g in true.items()})

    assert one.last_gradient_norm == pytest.approx(5.0)
    assert one.clip_count == 1
    assert torch.stack(list(gradients.values())).norm().item() == pytest.approx(1.0, rel=1e-5)


def test_small_gradients_are_not_clipped():
    one = layer(initial_loss_scale=1.0)

    gradients, _ = one.process_gradients({"w": torch.tensor([0.25])})

    assert (gradients["w"].item(), one.clip_count) == (0.25, 0)


def test_the_callers_gradients_are_left_alone():
    given = torch.tensor([8.0])

    layer().process_gradients({"w": given})

    assert given.item() == 8.0


@pytest.mark.parametrize("enabled", [True, False])
def test_non_finite_gradients_skip_the_step_with_and_without_scaling(enabled):
    one = layer(enable_dynamic_loss_scaling=enabled)

    gradients, skip = one.process_gradients({"w": torch.tensor([math.nan])})

    assert (gradients, skip) == ({}, True)
    assert one.last_offenders[0].name == "w"
    assert math.isnan(one.last_gradient_norm)


def test_statistics_say_what_is_switched_on():
    stats = GradientConversionLayer().get_stats()

    assert (stats.clipping_enabled, stats.max_grad_norm, stats.loss_scaler_stats.current_scale) == (True, 1.0, 65536.0)
    assert not layer(max_grad_norm=0.0).get_stats().clipping_enabled


def test_none_options_are_refused():
    with pytest.raises(InvalidArgument, match="gradient layer: options is None"):
        GradientConversionLayer(None)
    with pytest.raises(InvalidArgument, match="performance monitor: options is None"):
        PerformanceMonitor(None)


def test_none_gradients_are_refused():
    with pytest.raises(InvalidArgument, match="process_gradients: got None, expected a mapping"):
        layer().process_gradients(None)


def test_missing_gradients_are_left_out_and_other_things_refused():
    layer = GradientConversionLayer(MixedPrecisionOptions.for_fp16(initial_loss_scale=4.0))

    gradients, skip = layer.process_gradients({"w": torch.ones(1), "frozen": None})

    assert (list(gradients), skip) == (["w"], False)
    with pytest.raises(InvalidArgument, match="clip_gradients: got a list, expected a mapping"):
        layer.clip_gradients([torch.ones(1)])
    with pytest.raises(InvalidArgument, match="process_gradients: w is a float, expected a dense tensor"):
        layer.process_gradients({"w": 1.0})


def test_clipping_alone_refuses_what_is_not_finite():
    with pytest.raises(InvalidArgument, match="NaN or Inf"):
        layer().clip_gradients({"w": torch.tensor([math.inf])})

    clipped = layer().clip_gradients({"w": torch.tensor([10.0])})
    assert clipped["w"].item() == pytest.approx(1.0, rel=1e-5)


def test_reset_forgets_clips_and_scale():
    one = layer()
    one.process_gradients({"w": torch.tensor([math.nan])})

    one.reset()

    assert (one.loss_scale, one.get_stats().clip_count, one.last_gradient_norm) == (65536.0, 0, 0.0)


def test_the_monitor_measures_what_happened(monkeypatch):
    clock = iter([0.0, 1.0, 10.0, 12.0, 20.0, 24.0])  # steps of one, two and four seconds
    monkeypatch.setattr(monitoring, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monitor = PerformanceMonitor(MixedPrecisionOptions(performance_log_interval=2))

    for _ in range(3):
        monitor.start_step()
        monitor.end_step()

    stats = monitor.get_stats()
    assert (stats.step_count, stats.total_time_seconds) == (3, 7.0)
    assert (stats.min_step_time_ms, stats.max_step_time_ms, stats.last_step_time_ms) == (1000.0, 4000.0, 4000.0)
    assert (stats.average_step_time_ms, stats.std_dev_step_time_ms) == (3000.0, 1000.0)  # of the last two
    assert stats.steps_per_second == 3 / 7
    assert "3 steps" in monitor.get_summary()


def test_the_monitor_logs_each_interval(caplog):
    monitor = PerformanceMonitor(MixedPrecisionOptions(performance_log_interval=2))

    with caplog.at_level("INFO", logger="model_checkpoint.precision"):
        for _ in range(5):
            monitor.start_step()
            monitor.end_step()

    assert len(caplog.records) == 2


def test_a_restored_monitor_continues_totals_and_extremes(monkeypatch):
    clock = iter([0.0, 1.0, 10.0, 12.0, 20.0, 21.5])  # one and two seconds, then one and a half
    monkeypatch.setattr(monitoring, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    first, second = PerformanceMonitor(), PerformanceMonitor()
    for _ in range(2):
        first.start_step()
        first.end_step()

    second.restore(first.get_stats())
    second.start_step()
    second.end_step()

    stats = second.get_stats()
    assert (stats.step_count, stats.total_time_seconds, stats.last_step_time_ms) == (3, 4.5, 1500.0)
    assert (stats.min_step_time_ms, stats.max_step_time_ms) == (1000.0, 2000.0)
    second.restore(PerformanceMonitor().get_stats())
    assert second.get_stats() == PerformanceMonitor().get_stats()


def test_the_monitor_refuses_an_end_without_a_start_and_resets():
    monitor = PerformanceMonitor()
    with pytest.raises(StepRefused, match=r"end_step\(\) without start_step"):
        monitor.end_step()
    monitor.start_step()
    monitor.end_step()

    monitor.reset()

    assert monitor.get_stats().step_count == 0
