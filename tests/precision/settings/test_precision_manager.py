"""The precision manager: which layers are excluded, and what the two copies of the weights are."""

import pytest
import torch

from model_checkpoint.precision.errors import InvalidArgument
from model_checkpoint.precision.settings.number_formats import Precision
from model_checkpoint.precision.settings.precision_manager import PrecisionManager
from model_checkpoint.precision.settings.precision_options import MixedPrecisionOptions


@pytest.fixture
def manager():
    return PrecisionManager(MixedPrecisionOptions.for_fp16())


def test_none_options_are_refused():
    with pytest.raises(InvalidArgument, match="options is None"):
        PrecisionManager(None)


@pytest.mark.parametrize(
    ("options", "target", "reduced"),
    [
        (MixedPrecisionOptions.for_fp16(), Precision.FP16, True),
        (MixedPrecisionOptions.for_bf16(), Precision.BF16, True),
        (MixedPrecisionOptions.for_fp16(precision=Precision.FP32), Precision.FP32, False),
    ],
)
def test_the_target_is_what_the_options_say(options, target, reduced):
    manager = PrecisionManager(options)

    assert (manager.target_precision, manager.is_reduced_precision) == (target, reduced)


@pytest.mark.slow
def test_auto_detection_asks_the_hardware():
    manager = PrecisionManager(MixedPrecisionOptions(auto_detect_precision=True))

    assert manager.target_precision is MixedPrecisionOptions().resolve_precision()


@pytest.mark.parametrize(
    ("name", "excluded"),
    [
        ("BatchNorm", True),
        ("encoder.batchnorm_3", True),
        ("LAYERNORM", True),
        ("block.GroupNorm.weight", True),
        ("InstanceNorm2d", True),
        ("token_embedding", True),
        ("linear", False),
        ("", False),
        (None, False),
    ],
)
def test_sensitive_layers_are_excluded_whatever_their_case(manager, name, excluded):
    assert manager.should_exclude_layer(name) is excluded


def test_only_the_given_patterns_are_excluded_when_the_defaults_are_switched_off():
    manager = PrecisionManager(
        MixedPrecisionOptions.for_fp16(auto_exclude_sensitive_layers=False, fp32_layer_patterns=("LayerNorm",))
    )

    assert manager.get_exclusion_patterns() == ["LayerNorm"]
    assert manager.should_exclude_layer("LayerNorm")
    assert not manager.should_exclude_layer("Embedding")


def test_own_patterns_come_on_top_of_the_defaults():
    manager = PrecisionManager(MixedPrecisionOptions.for_fp16(fp32_layer_patterns=("head",)))

    assert manager.get_exclusion_patterns()[-2:] == ["Embedding", "head"]


def test_the_default_manager_is_for_fp16():
    assert PrecisionManager().target_precision is Precision.FP16


@pytest.mark.parametrize(("pattern", "name"), [("head", "head"), ("head", "model.HEAD.weight"), (r"^fc\d$", "fc7")])
def test_a_pattern_matches_exactly_by_containment_or_as_expression(manager, pattern, name):
    assert not manager.should_exclude_layer(name)

    manager.exclude_layers_matching(pattern)

    assert manager.should_exclude_layer(name)


def test_a_broken_expression_still_matches_as_text(manager):
    manager.exclude_layers_matching("head[")

    assert manager.should_exclude_layer("my_head[0]")
    assert not manager.should_exclude_layer("head")


@pytest.mark.parametrize("pattern", [None, "", "   "])
def test_a_blank_pattern_is_refused(manager, pattern):
    with pytest.raises(InvalidArgument, match="exclude_layers_matching: pattern is"):
        manager.exclude_layers_matching(pattern)


def test_an_exclusion_can_be_added_removed_and_counted(manager):
    before = manager.excluded_layer_count
    manager.exclude_layers_matching("head")
    assert (manager.excluded_layer_count, manager.should_exclude_layer("head")) == (before + 1, True)

    assert manager.remove_exclusion("head") is True

    assert (manager.excluded_layer_count, manager.should_exclude_layer("head")) == (before, False)
    assert manager.remove_exclusion("head") is False


def test_clearing_removes_the_default_patterns_too(manager):
    manager.clear_exclusions()

    assert manager.get_exclusion_patterns() == []
    assert manager.excluded_layer_count == 0


def test_weights_are_converted_unless_excluded(manager):
    converted = manager.convert_weights({"linear": torch.ones(2), "LayerNorm": torch.ones(2)})

    assert converted["linear"].dtype == torch.float16
    assert converted["LayerNorm"].dtype == torch.float32


def test_masters_are_separate_fp32_copies(manager):
    weights = {"full": torch.ones(2), "half": torch.ones(2, dtype=torch.float16)}

    masters = manager.create_master_weights(weights)
    weights["full"].zero_()

    assert all(master.dtype == torch.float32 and master.sum() == 2 for master in masters.values())


def test_training_weights_are_the_cast_of_their_masters(manager):
    masters = {"w": torch.randn(50)}

    assert torch.equal(manager.sync_training_weights(masters)["w"], masters["w"].half())


def test_fp32_conversion_takes_a_tensor_or_a_mapping(manager):
    half = torch.ones(2, dtype=torch.float16)

    assert manager.convert_to_fp32(half).dtype == torch.float32
    assert manager.convert_to_fp32({"w": half})["w"].dtype == torch.float32


@pytest.mark.parametrize(
    "method",
    ["convert_to_training_precision", "convert_to_fp32", "convert_weights", "create_master_weights",
     "sync_training_weights"],
)  # fmt: skip
def test_none_is_refused_everywhere(manager, method):
    with pytest.raises(InvalidArgument, match="None"):
        getattr(manager, method)(None)
