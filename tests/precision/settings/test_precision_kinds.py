"""Formats, hardware and options: what they accept, what they find, what they refuse."""

import os
import pickle
from dataclasses import fields

import numpy as np
import pytest
import torch

from model_checkpoint.precision.errors import InvalidArgument, InvalidOptions
from model_checkpoint.precision.settings.hardware import HardwareDetector, _read_probe, probe_hardware
from model_checkpoint.precision.settings.number_formats import Precision, PrecisionConverter
from model_checkpoint.precision.settings.precision_options import HysteresisRefill, MixedPrecisionOptions


def test_converting_to_the_same_precision_returns_the_same_object():
    tensor = torch.ones(3)

    assert PrecisionConverter.convert(tensor, Precision.FP32) is tensor


@pytest.mark.parametrize("precision", list(Precision))
def test_conversion_is_detected_as_what_it_is(precision):
    converted = PrecisionConverter.convert(torch.ones(3), precision)

    assert PrecisionConverter.detect_precision(converted) is precision


@pytest.mark.parametrize("source", list(Precision))
@pytest.mark.parametrize("target", list(Precision))
def test_a_conversion_called_safe_loses_no_value(source, target):
    extremes = torch.tensor([torch.finfo(source.dtype).max, torch.finfo(source.dtype).tiny], dtype=source.dtype)
    grid = torch.randn(1000).to(source.dtype)
    values = torch.cat([extremes, grid])

    kept = torch.equal(values.to(target.dtype).to(source.dtype), values)

    assert PrecisionConverter.is_conversion_safe(source, target) == kept


def test_none_is_no_tensor():
    with pytest.raises(InvalidArgument, match="convert: tensor is None"):
        PrecisionConverter.convert(None, Precision.FP16)


def test_float64_is_no_training_precision():
    with pytest.raises(InvalidArgument, match=r"torch.float64 is not one of"):
        PrecisionConverter.detect_precision(torch.ones(1, dtype=torch.float64))


@pytest.mark.slow
def test_hardware_is_probed_once_and_again_after_a_reset():
    HardwareDetector.reset_cache()

    first = HardwareDetector.detect_capabilities()

    assert HardwareDetector.detect_capabilities() is first
    HardwareDetector.reset_cache()
    assert HardwareDetector.detect_capabilities() is not first
    assert HardwareDetector.detect_capabilities() == first


@pytest.mark.slow
def test_the_recommended_precision_really_computes():
    precision = HardwareDetector.get_recommended_precision()

    product = torch.ones(8, 8, dtype=precision.dtype) @ torch.ones(8, 8, dtype=precision.dtype)

    assert (product == 8).all()


def test_a_probe_that_cannot_even_import_torch_recommends_fp32_and_says_why(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch for you')")

    found = probe_hardware({**os.environ, "PYTHONPATH": str(tmp_path)})

    assert found.recommended is Precision.FP32
    assert "no torch for you" in found.reasons["BF16"]


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        ("os.kill(os.getpid(), signal.SIGILL)", "the probe was killed by signal 4"),  # an illegal instruction
        ("os._exit(0)", "the probe ended with code 0: "),
    ],
)
def test_a_child_that_ends_before_it_has_answered_counts_as_unsupported(tmp_path, deed, told):
    (tmp_path / "torch.py").write_text(f"import os, signal; {deed}")

    found = probe_hardware({**os.environ, "PYTHONPATH": str(tmp_path)})

    assert not found.supports_bf16
    assert found.reasons["BF16"] == told


def test_fp32_is_always_there():
    nothing = _read_probe("", "no probe")

    assert nothing.supports_fp32 is True
    assert (nothing.supports_fp16, nothing.supports_bf16, nothing.recommended) == (False, False, Precision.FP32)


def test_a_child_that_dies_in_bf16_keeps_its_fp16_answer():
    found = _read_probe('["cpu", "FP16", true, ""]\n', "the probe was killed by signal 4")

    assert found.recommended is Precision.FP16
    assert found.reasons == {"BF16": "the probe was killed by signal 4"}


def test_default_options_are_those_of_the_contract():
    options = MixedPrecisionOptions()

    assert (options.precision, options.auto_detect_precision) == (Precision.FP16, True)
    assert (options.initial_loss_scale, options.growth_factor, options.backoff_factor) == (65536, 2, 0.5)
    assert (options.max_loss_scale, options.min_loss_scale, options.growth_interval) == (1e9, 1, 2000)
    assert options.fp32_layer_patterns == ("BatchNorm", "LayerNorm", "InstanceNorm", "GroupNorm")
    assert (options.max_grad_norm, options.max_consecutive_overflows) == (1.0, 10)
    assert (options.max_fp32_failures, options.performance_log_interval) == (50, 100)
    assert (options.hysteresis, options.hysteresis_refill) == (1, HysteresisRefill.GROWTH)
    assert (options.recovery_steps, options.max_recoveries, options.timeline_length) == (1000, 3, 1024)
    assert options.accumulate_in_fp32
    assert options.cast_model_io
    assert options.enable_gradient_clipping
    assert options.auto_exclude_sensitive_layers
    assert options.log_fallback_events
    assert options.enable_dynamic_loss_scaling
    assert options.enable_auto_fallback
    assert not options.enable_performance_monitoring


def test_presets_are_those_of_the_contract():
    fp16, bf16 = MixedPrecisionOptions.for_fp16(), MixedPrecisionOptions.for_bf16()
    careful = MixedPrecisionOptions.conservative()

    assert (fp16.precision, fp16.auto_detect_precision) == (Precision.FP16, False)
    assert (bf16.precision, bf16.initial_loss_scale, bf16.growth_interval) == (Precision.BF16, 1, 1000)
    assert not bf16.enable_dynamic_loss_scaling
    assert (careful.initial_loss_scale, careful.growth_factor, careful.backoff_factor) == (8192, 1.5, 0.75)
    assert (careful.growth_interval, careful.max_grad_norm, careful.max_consecutive_overflows) == (4000, 0.5, 5)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("initial_loss_scale", 0.0),
        ("initial_loss_scale", float("nan")),
        ("initial_loss_scale", 2e9),
        ("initial_loss_scale", 0.5),
        ("growth_factor", 1.0),
        ("backoff_factor", 0.0),
        ("backoff_factor", 1.0),
        ("max_loss_scale", 1.0),
        ("min_loss_scale", 0.0),
        ("growth_interval", 0),
        ("hysteresis", 0),
        ("max_grad_norm", -1.0),
        ("max_consecutive_overflows", 0),
        ("performance_log_interval", 0),
        ("recovery_steps", -1),
        ("max_recoveries", -1),
        ("max_fp32_failures", 0),
        ("timeline_length", 0),
        ("max_grad_norm", float("inf")),
        ("max_loss_scale", float("inf")),
        ("max_loss_scale", 0.5),
        ("growth_factor", float("inf")),
        ("growth_factor", float("nan")),
        ("fp32_layer_patterns", (" ",)),
        ("fp32_layer_patterns", "LayerNorm"),  # would be nine patterns of one letter
        ("fp32_layer_patterns", (7,)),
        ("precision", "bf16"),
        ("precision", torch.bfloat16),
        ("hysteresis_refill", "growth"),
        ("growth_interval", 2.5),
        ("growth_interval", "2000"),
        ("hysteresis", True),
        ("max_grad_norm", None),
        ("enable_auto_fallback", 1),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(InvalidOptions, match=rf"^options\.{field}: got .*, expected"):
        MixedPrecisionOptions(**{field: value})


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("precision", "bf16", r"one of Precision\.FP32, Precision\.FP16, Precision\.BF16"),
        ("growth_interval", 2.5, "a whole number"),
        ("max_grad_norm", None, "a number"),
        ("enable_auto_fallback", 1, "True or False"),
        ("fp32_layer_patterns", 7, "a tuple or list of texts"),
    ],
)
def test_an_option_of_a_wrong_kind_says_which_it_takes(field, value, kind):
    with pytest.raises(InvalidOptions, match=rf"^options\.{field}: got .*, expected {kind}\. Change it"):
        MixedPrecisionOptions(**{field: value})


@pytest.mark.parametrize(
    "values",
    [
        {"initial_loss_scale": 1.0},
        {"initial_loss_scale": 1e9},
        {"initial_loss_scale": 0.25, "min_loss_scale": 0.25, "max_loss_scale": 0.5},
        {"growth_factor": 1.001, "backoff_factor": 0.999},
        {"backoff_factor": 0.001},
        {"recovery_steps": 0, "max_recoveries": 0, "max_grad_norm": 0.0},
        dict.fromkeys(("growth_interval", "hysteresis", "max_consecutive_overflows", "max_fp32_failures"), 1),
        dict.fromkeys(("timeline_length", "performance_log_interval"), 1),
        {"fp32_layer_patterns": ()},
    ],
)
def test_options_at_the_edge_of_their_range_are_taken(values):
    chosen = MixedPrecisionOptions(**values)

    assert {name: getattr(chosen, name) for name in values} == values


def test_whole_and_foreign_numbers_and_lists_of_patterns_are_taken():
    chosen = MixedPrecisionOptions(max_grad_norm=2, growth_interval=np.int64(5), fp32_layer_patterns=["head"])

    assert (chosen.max_grad_norm, chosen.growth_interval, chosen.fp32_layer_patterns) == (2, 5, ("head",))


def test_a_clone_is_equal_and_another_object():
    options = MixedPrecisionOptions.conservative()

    assert options.clone() == options
    assert options.clone() is not options


@pytest.mark.parametrize("preset", ["for_fp16", "for_bf16", "conservative"])
def test_options_survive_the_tree(preset):
    options = getattr(MixedPrecisionOptions, preset)(hysteresis=3, hysteresis_refill=HysteresisRefill.SUCCESS)

    tree = options.to_tree()

    assert MixedPrecisionOptions.from_tree(tree) == options
    assert set(tree) == {field.name for field in fields(options)}
    assert all(isinstance(value, str | int | float | bool | list) for value in tree.values())


def test_options_of_a_newer_version_are_refused_by_name():
    with pytest.raises(InvalidOptions, match=r"unknown fields \['warp_factor'\]"):
        MixedPrecisionOptions.from_tree({"warp_factor": 9})


def test_options_out_of_range_in_a_tree_are_refused_in_the_same_words():
    with pytest.raises(InvalidOptions, match=r"^options\.hysteresis: got 0, expected"):
        MixedPrecisionOptions.from_tree({"hysteresis": 0})


def test_options_with_an_unknown_precision_are_refused():
    with pytest.raises(InvalidOptions, match=r"'fp3' is not a valid Precision"):
        MixedPrecisionOptions.from_tree({"precision": "fp3"})


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(InvalidOptions("options.x: bad")))

    assert isinstance(error, ValueError)
    assert str(error) == "options.x: bad"
