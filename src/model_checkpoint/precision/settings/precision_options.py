"""Precision options: everything that can be chosen about mixed precision, checked when it is made."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from numbers import Integral, Real
from typing import Any

from model_checkpoint.precision.errors import InvalidOptions
from model_checkpoint.precision.settings.hardware import HardwareDetector
from model_checkpoint.precision.settings.number_formats import Precision

SENSITIVE_LAYERS = ("BatchNorm", "LayerNorm", "InstanceNorm", "GroupNorm")


class HysteresisRefill(Enum):
    """When the tolerated overflows are granted anew.

    ``GROWTH``: only when the scale grows (Megatron's rule, and the default). ``BACKOFF``: after each lowering.
    ``SUCCESS``: after every finite step, so that only overflows in a row lower the scale.
    """

    GROWTH = "growth"
    BACKOFF = "backoff"
    SUCCESS = "success"


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPrecisionOptions:
    """Choices for mixed-precision training; gradients are clipped to norm 1.0 unless told otherwise.

    Attributes:
        precision: format of the training weights.
        auto_detect_precision: let a hardware probe choose the format instead.
        initial_loss_scale: the loss is multiplied by this at first; only FP16 is ever scaled.
        growth_factor: the scale is multiplied by this after ``growth_interval`` finite steps.
        backoff_factor: the scale is multiplied by this at an overflow.
        max_loss_scale: the scale never exceeds this; scales that are powers of two unscale exactly.
        min_loss_scale: the scale never falls below this.
        growth_interval: finite steps between two growths.
        enable_dynamic_loss_scaling: False trains without any scale; the finite check stays on.
        hysteresis: overflows tolerated before the scale is lowered; 1 lowers at once.
        hysteresis_refill: when those are granted anew.
        auto_exclude_sensitive_layers: keep norms and embeddings in FP32.
        fp32_layer_patterns: keep these in FP32 in any case; matched against module class and qualified name.
        max_grad_norm: largest global L2 norm of the true gradients; 0 switches clipping off.
        enable_gradient_clipping: False switches clipping off.
        accumulate_in_fp32: let ``param.grad`` be FP32, so that many micro-batches add up without loss.
            DistributedDataParallel still reduces them in half, as its buckets have the parameters' dtype.
        cast_model_io: cast the model's floating inputs to its precision and its outputs to FP32.
        max_consecutive_overflows: skipped steps in a row before the affected groups fall back to FP32.
        enable_auto_fallback: False never falls back by itself.
        recovery_steps: clean steps in FP32 before a group is tried again; 0 never tries. Doubles per attempt.
        max_recoveries: attempts before a group stays in FP32.
        max_fp32_failures: non-finite steps in a row that FP32 could not cure before training is stopped.
        log_fallback_events: log fallbacks and returns at WARNING.
        timeline_length: how many scale events are kept.
        enable_performance_monitoring: measure each step.
        performance_log_interval: steps between two log lines, and length of the measured window.

    Example:
        >>> MixedPrecisionOptions(backoff_factor=2.0)
        Traceback (most recent call last):
        ...
        model_checkpoint.precision.errors.InvalidOptions: options.backoff_factor: got 2.0, expected between 0 and 1...
    """

    precision: Precision = Precision.FP16
    auto_detect_precision: bool = True
    initial_loss_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    max_loss_scale: float = 1e9
    min_loss_scale: float = 1.0
    growth_interval: int = 2000
    enable_dynamic_loss_scaling: bool = True
    hysteresis: int = 1
    hysteresis_refill: HysteresisRefill = HysteresisRefill.GROWTH
    auto_exclude_sensitive_layers: bool = True
    fp32_layer_patterns: tuple[str, ...] = SENSITIVE_LAYERS
    max_grad_norm: float = 1.0
    enable_gradient_clipping: bool = True
    accumulate_in_fp32: bool = True
    cast_model_io: bool = True
    max_consecutive_overflows: int = 10
    enable_auto_fallback: bool = True
    recovery_steps: int = 1000
    max_recoveries: int = 3
    max_fp32_failures: int = 50
    log_fallback_events: bool = True
    timeline_length: int = 1024
    enable_performance_monitoring: bool = False
    performance_log_interval: int = 100

    def __post_init__(self) -> None:
        patterns: object = self.fp32_layer_patterns
        if isinstance(patterns, list):  # as it comes from a tree, and as people write it
            object.__setattr__(self, "fp32_layer_patterns", tuple(patterns))
        self.validate()

    def validate(self) -> None:
        """Raise :class:`InvalidOptions` for the first field of a wrong kind or out of its range."""
        for field in fields(self):
            kind = type(field.default)
            _require(field.name, getattr(self, field.name), _is_a(getattr(self, field.name), kind), _name_kind(kind))
        self._validate_scale()
        for name in (
            "growth_interval",
            "hysteresis",
            "max_consecutive_overflows",
            "max_fp32_failures",
            "timeline_length",
            "performance_log_interval",
        ):
            _require(name, getattr(self, name), getattr(self, name) > 0, "more than 0")
        for name in ("recovery_steps", "max_recoveries"):
            _require(name, getattr(self, name), getattr(self, name) >= 0, "0 or more")
        norm = self.max_grad_norm
        _require("max_grad_norm", norm, math.isfinite(norm) and norm >= 0, "a finite number, 0 or more")
        texts = all(isinstance(pattern, str) and pattern.strip() for pattern in self.fp32_layer_patterns)
        _require("fp32_layer_patterns", self.fp32_layer_patterns, texts, "only text, and no blank pattern")

    def _validate_scale(self) -> None:
        low, high, initial = self.min_loss_scale, self.max_loss_scale, self.initial_loss_scale
        _require("growth_factor", self.growth_factor, math.isfinite(self.growth_factor) and self.growth_factor > 1,
                 "more than 1")  # fmt: skip
        _require("backoff_factor", self.backoff_factor, 0 < self.backoff_factor < 1, "between 0 and 1")
        _require("min_loss_scale", low, low > 0, "more than 0")
        _require("max_loss_scale", high, math.isfinite(high) and high > low, f"more than min_loss_scale {low}")
        _require("initial_loss_scale", initial, low <= initial <= high, f"between {low} and {high}")

    @property
    def clip_norm(self) -> float:
        """The norm gradients are clipped to; 0.0 when they are not."""
        return self.max_grad_norm if self.enable_gradient_clipping else 0.0

    def resolve_precision(self) -> Precision:
        """The format to train in: probed when ``auto_detect_precision``, else ``precision``."""
        return HardwareDetector.get_recommended_precision() if self.auto_detect_precision else self.precision

    def clone(self) -> MixedPrecisionOptions:
        """An equal, separate object."""
        return replace(self)

    def to_tree(self) -> dict[str, Any]:
        """Plain values, one per field.

        Example:
            >>> MixedPrecisionOptions.from_tree(MixedPrecisionOptions.for_bf16().to_tree()).precision
            <Precision.BF16: 'bf16'>
        """
        tree = asdict(self)
        tree["precision"], tree["hysteresis_refill"] = self.precision.value, self.hysteresis_refill.value
        tree["fp32_layer_patterns"] = list(self.fp32_layer_patterns)
        return tree

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> MixedPrecisionOptions:
        """The options a tree describes; missing fields take their defaults, unknown ones are refused by name."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(tree) - known)
        if unknown:
            raise InvalidOptions(f"options: unknown fields {unknown}. The checkpoint was written by a newer version.")
        values = dict(tree)
        try:
            values["precision"] = Precision(values.get("precision", "fp16"))
            values["hysteresis_refill"] = HysteresisRefill(values.get("hysteresis_refill", "growth"))
            return cls(**values)
        except (TypeError, ValueError) as error:
            if isinstance(error, InvalidOptions):
                raise
            raise InvalidOptions(f"options: {error}. The checkpoint's options cannot be read.") from error

    @classmethod
    def for_fp16(cls, **changes: Any) -> MixedPrecisionOptions:
        """FP16 with a dynamic scale, whatever the hardware."""
        return cls(**{"precision": Precision.FP16, "auto_detect_precision": False, **changes})

    @classmethod
    def for_bf16(cls, **changes: Any) -> MixedPrecisionOptions:
        """BF16: its range is that of FP32, so nothing is scaled."""
        preset = {
            "precision": Precision.BF16,
            "auto_detect_precision": False,
            "initial_loss_scale": 1.0,
            "growth_interval": 1000,
            "enable_dynamic_loss_scaling": False,
        }
        return cls(**{**preset, **changes})

    @classmethod
    def conservative(cls, **changes: Any) -> MixedPrecisionOptions:
        """FP16 that grows slowly, clips harder and falls back sooner."""
        preset = {
            "auto_detect_precision": False,
            "initial_loss_scale": 8192.0,
            "growth_factor": 1.5,
            "backoff_factor": 0.75,
            "growth_interval": 4000,
            "max_grad_norm": 0.5,
            "max_consecutive_overflows": 5,
        }
        return cls(**{**preset, **changes})


def _is_a(value: object, kind: type) -> bool:
    """Whether ``value`` may stand for a default of ``kind``; a whole number is a real one, a truth value is neither."""
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    return isinstance(value, kind)


def _name_kind(kind: type) -> str:
    if issubclass(kind, Enum):
        return f"one of {', '.join(map(str, kind))}"
    names = {int: "a whole number", float: "a number", bool: "True or False", tuple: "a tuple or list of texts"}
    return names[kind]


def _require(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise InvalidOptions(
            f"options.{name}: got {value!r}, expected {expected}. Change it and make the options again."
        )


def require_options(options: object) -> MixedPrecisionOptions:
    """The options, if they are some; a dict or a name of a precision is refused with the way to say it."""
    if not isinstance(options, MixedPrecisionOptions):
        raise InvalidOptions(
            f"options: got {options!r}, expected MixedPrecisionOptions. Pass MixedPrecisionOptions.for_fp16(), "
            "for_bf16() or your own."
        )
    return options


FOR_FP16 = MixedPrecisionOptions.for_fp16()  # what everything starts from unless told otherwise
