"""Configuration: which activations are kept, and how dropped ones come back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from model_checkpoint.recompute.errors import SettingInvalid

_MIB = 1 << 20


class CheckpointStrategy(Enum):
    """How to choose the activations to keep.

    Example:
        >>> CheckpointStrategy("smart")
        <CheckpointStrategy.SMART: 'smart'>
    """

    INTERVAL = "interval"
    SELECTIVE = "selective"
    SIZE_BASED = "size_based"
    MEMORY_AWARE = "memory_aware"
    SMART = "smart"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """Settings of activation checkpointing; checked by :meth:`validate`, not on construction.

    ``max_recomputation_cache_size=0`` means no cache, as does ``enable_recomputation_cache=False``.

    Example:
        >>> CheckpointConfig.aggressive().with_interval(8).interval
        8
        >>> CheckpointConfig(interval=0).validate()
        Traceback (most recent call last):
            ...
        model_checkpoint.recompute.errors.SettingInvalid: checkpoint config: interval is 0, expected 1 or more.
    """

    strategy: CheckpointStrategy = CheckpointStrategy.INTERVAL
    interval: int = 2
    checkpoint_layers: tuple[str, ...] = ()
    exclude_layers: tuple[str, ...] = ()
    min_activation_size_bytes: int = _MIB
    max_memory_percentage: float = 0.8
    enable_recomputation_cache: bool = True
    max_recomputation_cache_size: int = 100 * _MIB
    use_async_recomputation: bool = False
    track_statistics: bool = True

    def __post_init__(self) -> None:
        # callers hand in lists; a string would fall apart into its letters
        for name in ("checkpoint_layers", "exclude_layers"):
            layers = getattr(self, name)
            if isinstance(layers, str):
                raise SettingInvalid(f"checkpoint config: {name} is the string {layers!r}, expected a list of ids.")
            object.__setattr__(self, name, tuple(layers))

    @classmethod
    def default(cls) -> CheckpointConfig:
        """Every second layer is kept."""
        return cls()

    @classmethod
    def aggressive(cls) -> CheckpointConfig:
        """Every fourth layer is kept: less memory, more time."""
        return cls(interval=4)

    @classmethod
    def conservative(cls) -> CheckpointConfig:
        """Every second layer is kept: more memory, less time."""
        return cls(interval=2)

    @classmethod
    def memory_aware(cls) -> CheckpointConfig:
        """The interval follows memory use, towards three quarters of what there is."""
        return cls(strategy=CheckpointStrategy.MEMORY_AWARE, max_memory_percentage=0.75)

    def validate(self) -> None:
        """Check every field.

        Raises:
            SettingInvalid: a field is outside its range; the message names it (a ``ValueError``).
        """
        if self.strategy not in set(CheckpointStrategy):
            _refuse("strategy", self.strategy, "a member of CheckpointStrategy")
        if self.interval < 1:
            _refuse("interval", self.interval, "1 or more")
        if not 0 < self.max_memory_percentage <= 1:
            _refuse("max_memory_percentage", self.max_memory_percentage, "above 0 and at most 1")
        if self.min_activation_size_bytes < 1:
            _refuse("min_activation_size_bytes", self.min_activation_size_bytes, "1 or more")
        if self.max_recomputation_cache_size < 0:
            _refuse("max_recomputation_cache_size", self.max_recomputation_cache_size, "0 or more")
        self._validate_layers()

    def _validate_layers(self) -> None:
        for name in ("checkpoint_layers", "exclude_layers"):
            for layer in getattr(self, name):
                if not isinstance(layer, str) or not layer.strip():
                    _refuse(name, layer, "layer ids that are not blank")
        both = sorted(set(self.checkpoint_layers) & set(self.exclude_layers))
        if both:
            _refuse("exclude_layers", both, "no layer that checkpoint_layers lists too")
        if self.strategy is CheckpointStrategy.SELECTIVE and not self.checkpoint_layers:
            _refuse("checkpoint_layers", self.checkpoint_layers, "at least one layer for the SELECTIVE strategy")

    def clone(self) -> CheckpointConfig:
        """An independent copy."""
        return replace(self)

    def with_strategy(self, strategy: CheckpointStrategy) -> CheckpointConfig:
        """A copy with another strategy."""
        return replace(self, strategy=strategy)

    def with_interval(self, interval: int) -> CheckpointConfig:
        """A copy with another interval."""
        return replace(self, interval=interval)


def _refuse(name: str, value: object, expected: str) -> None:
    raise SettingInvalid(f"checkpoint config: {name} is {value!r}, expected {expected}.")


class CheckpointConfigBuilder:
    """Collects settings one by one; :meth:`build` checks them and gives a config of its own each time.

    Example:
        >>> builder = CheckpointConfigBuilder().with_interval(3).with_exclude_layers(["head"])
        >>> builder.build().exclude_layers
        ('head',)
    """

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}

    def _set(self, name: str, value: Any) -> CheckpointConfigBuilder:
        self._settings[name] = value
        return self

    def with_strategy(self, strategy: CheckpointStrategy) -> CheckpointConfigBuilder:
        """Choose how activations to keep are found."""
        return self._set("strategy", strategy)

    def with_interval(self, interval: int) -> CheckpointConfigBuilder:
        """Keep every ``interval``-th layer."""
        return self._set("interval", interval)

    def with_checkpoint_layers(self, layer_ids: Iterable[str]) -> CheckpointConfigBuilder:
        """Name the layers the SELECTIVE strategy keeps."""
        return self._set("checkpoint_layers", layer_ids if isinstance(layer_ids, str) else tuple(layer_ids))

    def with_exclude_layers(self, layer_ids: Iterable[str]) -> CheckpointConfigBuilder:
        """Name layers no strategy keeps."""
        return self._set("exclude_layers", layer_ids if isinstance(layer_ids, str) else tuple(layer_ids))

    def with_min_activation_size_bytes(self, size: int) -> CheckpointConfigBuilder:
        """Set the smallest activation the SIZE_BASED strategy keeps."""
        return self._set("min_activation_size_bytes", size)

    def with_max_memory_percentage(self, fraction: float) -> CheckpointConfigBuilder:
        """Set the part of memory the MEMORY_AWARE strategy aims at, in (0, 1]."""
        return self._set("max_memory_percentage", fraction)

    def with_enable_recomputation_cache(self, enabled: bool) -> CheckpointConfigBuilder:
        """Keep recomputed activations in a bounded cache."""
        return self._set("enable_recomputation_cache", enabled)

    def with_max_recomputation_cache_size(self, size: int) -> CheckpointConfigBuilder:
        """Bound that cache, in bytes."""
        return self._set("max_recomputation_cache_size", size)

    def with_use_async_recomputation(self, enabled: bool) -> CheckpointConfigBuilder:
        """Recompute on worker threads."""
        return self._set("use_async_recomputation", enabled)

    def with_track_statistics(self, enabled: bool) -> CheckpointConfigBuilder:
        """Keep books of allocations in a memory tracker."""
        return self._set("track_statistics", enabled)

    def build(self) -> CheckpointConfig:
        """Check the settings and return them as a config."""
        config = CheckpointConfig(**self._settings)
        config.validate()
        return config
