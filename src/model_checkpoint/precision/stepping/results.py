"""Results: what one optimizer step did, and the running totals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from model_checkpoint.precision.gradients.conversion import GradientProcessingStats
from model_checkpoint.precision.gradients.finite import Offender
from model_checkpoint.precision.scaling.scaler import LossScalerStats
from model_checkpoint.precision.settings.number_formats import Precision
from model_checkpoint.precision.stepping.monitor import PerformanceStats


class StepReason(Enum):
    """Why a step was applied or not."""

    APPLIED = "applied"
    OVERFLOW = "overflow"  # non-finite gradients in reduced precision
    BAD_LOSS = "bad_loss"  # the loss itself was NaN or Inf before it was scaled
    NONFINITE_FP32 = "nonfinite_fp32"  # non-finite gradients that no lower scale can cure
    OTHER_RANK = "other_rank"  # gradients are fine here, another process skips


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What :meth:`MixedPrecisionOptimizer.step` did; never guess a skip from a changed scale.

    Example:
        >>> result = StepResult(applied=True, reason=StepReason.APPLIED, grad_norm=0.5, scale_used=1024.0)
        >>> result.applied, result.offenders
        (True, ())
    """

    applied: bool
    reason: StepReason
    grad_norm: float  # true global norm before clipping; NaN or Inf when skipped for it
    scale_used: float
    clipped: bool = False
    offenders: tuple[Offender, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPrecisionOptimizerStats:
    """A snapshot of the optimizer's counters."""

    step_count: int
    skipped_steps: int
    bad_losses: int
    has_fallback: bool
    target_precision: Precision
    gradient_stats: GradientProcessingStats
    loss_scaler_stats: LossScalerStats
    performance_stats: PerformanceStats

    @property
    def skip_rate(self) -> float:
        """Skipped steps over all steps; 0.0 before the first."""
        return self.skipped_steps / self.step_count if self.step_count else 0.0
