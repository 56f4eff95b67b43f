"""The configuration: defaults, presets, rules, builder."""

from dataclasses import FrozenInstanceError, fields

import pytest

from model_checkpoint.recompute import CheckpointConfig, CheckpointConfigBuilder, CheckpointStrategy

MIB = 1 << 20


def test_the_defaults_are_as_documented():
    assert CheckpointConfig() == CheckpointConfig(
        strategy=CheckpointStrategy.INTERVAL,
        interval=2,
        checkpoint_layers=[],
        exclude_layers=[],
        min_activation_size_bytes=MIB,
        max_memory_percentage=0.8,
        enable_recomputation_cache=True,
        max_recomputation_cache_size=100 * MIB,
        use_async_recomputation=False,
        track_statistics=True,
    )


@pytest.mark.parametrize(
    ("preset", "strategy", "interval", "percentage"),
    [
        ("default", CheckpointStrategy.INTERVAL, 2, 0.8),
        ("aggressive", CheckpointStrategy.INTERVAL, 4, 0.8),
        ("conservative", CheckpointStrategy.INTERVAL, 2, 0.8),
        ("memory_aware", CheckpointStrategy.MEMORY_AWARE, 2, 0.75),
    ],
)
def test_each_preset_holds_and_is_a_fresh_instance(preset, strategy, interval, percentage):
    config = getattr(CheckpointConfig, preset)()

    config.validate()

    assert (config.strategy, config.interval, config.max_memory_percentage) == (strategy, interval, percentage)
    assert getattr(CheckpointConfig, preset)() is not config


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"strategy": "interval"}, "strategy is 'interval', expected a member of CheckpointStrategy"),
        ({"strategy": None}, "strategy is None"),
        ({"interval": 0}, "interval is 0, expected 1 or more"),
        ({"interval": -3}, "interval is -3"),
        ({"max_memory_percentage": 0.0}, "max_memory_percentage is 0.0, expected above 0 and at most 1"),
        ({"max_memory_percentage": -0.1}, "max_memory_percentage is -0.1"),
        ({"max_memory_percentage": 1.0001}, "max_memory_percentage is 1.0001"),
        ({"max_memory_percentage": float("nan")}, "max_memory_percentage is nan"),
        ({"min_activation_size_bytes": 0}, "min_activation_size_bytes is 0"),
        ({"max_recomputation_cache_size": -1}, "max_recomputation_cache_size is -1, expected 0 or more"),
        ({"checkpoint_layers": ["a", " "]}, "checkpoint_layers is ' ', expected layer ids that are not blank"),
        ({"exclude_layers": [""]}, "exclude_layers is ''"),
        ({"exclude_layers": [None]}, "exclude_layers is None"),
        ({"checkpoint_layers": ["a", "b"], "exclude_layers": ["b"]}, r"exclude_layers is \['b'\], expected no layer"),
        ({"strategy": CheckpointStrategy.SELECTIVE}, r"checkpoint_layers is \(\), expected at least one layer"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_each_rule_is_checked(setting, message):
    config = CheckpointConfig(**setting)

    with pytest.raises(ValueError, match=message):
        config.validate()


def test_a_string_is_no_list_of_layers():
    with pytest.raises(ValueError, match="exclude_layers is the string 'head', expected a list"):
        CheckpointConfig(exclude_layers="head")


@pytest.mark.parametrize(
    "setting",
    [
        {"max_memory_percentage": 1e-12},
        {"max_memory_percentage": 1.0},
        {"min_activation_size_bytes": 1},
        {"interval": 2**62},
        {"interval": 1},
        {"max_recomputation_cache_size": 0},
        {"strategy": CheckpointStrategy.SELECTIVE, "checkpoint_layers": ["a"]},
    ],
    ids=str,
)
def test_the_bounds_themselves_are_legal(setting):
    CheckpointConfig(**setting).validate()


def test_the_builder_sets_every_field():
    settings = {
        "strategy": CheckpointStrategy.SMART,
        "interval": 7,
        "checkpoint_layers": ("a",),
        "exclude_layers": ("b",),
        "min_activation_size_bytes": 5,
        "max_memory_percentage": 0.5,
        "enable_recomputation_cache": False,
        "max_recomputation_cache_size": 9,
        "use_async_recomputation": True,
        "track_statistics": False,
    }
    assert set(settings) == {field.name for field in fields(CheckpointConfig)}
    builder = CheckpointConfigBuilder()

    for name, value in settings.items():
        assert getattr(builder, f"with_{name}")(value) is builder

    assert builder.build() == CheckpointConfig(**settings)


def test_the_builder_checks():
    with pytest.raises(ValueError, match="interval is 0"):
        CheckpointConfigBuilder().with_interval(0).build()


def test_what_a_builder_built_does_not_change_with_it():
    layers = ["a"]
    builder = CheckpointConfigBuilder().with_interval(3).with_exclude_layers(layers)
    first = builder.build()

    layers.append("b")
    second = builder.with_interval(9).build()

    assert (first.interval, second.interval) == (3, 9)
    assert first.exclude_layers == ("a",)


def test_copies_are_independent():
    layers = ["a"]
    config = CheckpointConfig(exclude_layers=layers)
    layers.append("b")

    clone = config.clone()

    assert clone == config
    assert clone is not config
    assert config.exclude_layers == ("a",)
    assert config.with_interval(9).interval == 9
    assert config.with_strategy(CheckpointStrategy.SMART).strategy is CheckpointStrategy.SMART
    assert (config.interval, config.strategy) == (2, CheckpointStrategy.INTERVAL)


def test_a_config_cannot_be_changed_in_place():
    with pytest.raises(FrozenInstanceError, match="interval"):
        CheckpointConfig().interval = 3
