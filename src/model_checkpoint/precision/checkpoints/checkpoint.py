"""MixedPrecisionCheckpoint: everything a mixed-precision run must not lose, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import torch

from model_checkpoint.precision.checkpoints.weights import StoredWeight
from model_checkpoint.precision.scaling.fallback import FallbackState
from model_checkpoint.precision.scaling.scaler import ScalerState
from model_checkpoint.precision.settings.number_formats import Precision
from model_checkpoint.precision.settings.precision_options import MixedPrecisionOptions
from model_checkpoint.precision.stepping.monitor import PerformanceStats

VERSION = 1  # of the record; how files are laid out is numbered apart, in wire
SYSTEM_KEYS = ("precision", "version")
COUNTERS = ("step_count", "skipped_steps", "bad_losses", "clip_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """What besides the state decides the bits of the next step; a change on resume is reported."""

    kernel: str = "unknown"
    threads: int = 0
    torch_version: str = "unknown"

    def to_tree(self) -> dict[str, Any]:
        """Plain values, one per field."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingWindow:
    """Gradients of an accumulation window that was not stepped yet, with the scale they carry."""

    scale: float
    losses_finite: bool
    gradients: Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MixedPrecisionCheckpoint:
    """A snapshot of a :class:`MixedPrecisionOptimizer`.

    Scaler, counters and modes are kept whole in ``scaler``, ``counters`` and ``fallback``; the single figures are
    read from them, so that nothing is stored twice.
    """

    version: int = VERSION
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))
    master_weights: Mapping[str, StoredWeight]
    training_weights: Mapping[str, StoredWeight]
    options: MixedPrecisionOptions
    target_precision: Precision
    scaler: ScalerState
    fallback: FallbackState
    counters: Mapping[str, int]
    base_optimizer_state: Mapping[str, Any] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    performance_stats: PerformanceStats = field(default_factory=PerformanceStats)
    untrained_weights: Mapping[str, StoredWeight] = field(default_factory=dict)
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    numerics: Numerics = field(default_factory=Numerics)
    pending: PendingWindow | None = None
    timeline: tuple[Mapping[str, Any], ...] = ()

    @property
    def current_loss_scale(self) -> float:
        """The loss scale."""
        return self.scaler.scale

    @property
    def steps_since_last_overflow(self) -> int:
        """Finite steps since the last overflow."""
        return self.scaler.steps_since_overflow

    @property
    def consecutive_overflows(self) -> int:
        """Overflows since the last finite step."""
        return self.scaler.consecutive_overflows

    @property
    def total_overflows(self) -> int:
        """Overflows ever."""
        return self.scaler.total_overflows

    @property
    def step_count(self) -> int:
        """Steps attempted, skipped ones included."""
        return self.counters["step_count"]

    @property
    def skipped_steps(self) -> int:
        """Steps not applied."""
        return self.counters["skipped_steps"]

    @property
    def has_fallback(self) -> bool:
        """Whether any group had fallen back to FP32."""
        return self.fallback.any_fp32
