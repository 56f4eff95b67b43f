"""GradientConversionLayer: scaled half gradients in, true clipped FP32 gradients out.

Order: check, unscale with the scale that was used, clip by the true global norm, and only then move the scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from model_checkpoint.precision.errors import InvalidArgument
from model_checkpoint.precision.gradients.finite import Offender, judge_gradients, name_offenders
from model_checkpoint.precision.scaling.scaler import DynamicLossScaler, LossScalerStats
from model_checkpoint.precision.settings.precision_manager import PrecisionManager
from model_checkpoint.precision.settings.precision_options import FOR_FP16, MixedPrecisionOptions

_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientProcessingStats:
    """A snapshot of what was done to gradients."""

    loss_scale: float
    clip_count: int
    last_gradient_norm: float
    clipping_enabled: bool
    max_grad_norm: float
    loss_scaler_stats: LossScalerStats


def describe_gradients(
    options: MixedPrecisionOptions, scaler: DynamicLossScaler, *, clips: int, norm: float
) -> GradientProcessingStats:
    """The snapshot of what was done so far."""
    return GradientProcessingStats(
        loss_scale=scaler.active_scale,
        clip_count=clips,
        last_gradient_norm=norm,
        clipping_enabled=options.clip_norm > 0,
        max_grad_norm=options.max_grad_norm,
        loss_scaler_stats=scaler.get_stats(),
    )


def clip_coefficient(norm: float, limit: float) -> float:
    """The factor that brings ``norm`` down to ``limit``; 1.0 when it is within, or ``limit`` is 0.

    Example:
        >>> clip_coefficient(0.5, 1.0), round(clip_coefficient(4.0, 1.0), 6)
        (1.0, 0.25)
    """
    return min(1.0, limit / (norm + _EPSILON)) if limit > 0 else 1.0


def require_tensors(values: object, where: str, *, may_miss: bool = False) -> None:
    """Raise unless ``values`` maps names to dense tensors; with ``may_miss`` None stands for one that is missing.

    Example:
        >>> require_tensors({"w": torch.ones(1), "b": None}, "step", may_miss=True)
    """
    if not isinstance(values, Mapping):
        got = "None" if values is None else f"a {type(values).__name__}"
        raise InvalidArgument(f"{where}: got {got}, expected a mapping of name to tensor. Pass one.")
    for name, value in values.items():
        if not (may_miss and value is None) and not (isinstance(value, torch.Tensor) and value.layout is torch.strided):
            got = str(value.layout) if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
            raise InvalidArgument(f"{where}: {name} is {got}, expected a dense tensor. Convert it.")


class GradientConversionLayer:
    """Turns name->gradient maps as they come from backward into what an FP32 optimizer may apply.

    Example:
        >>> layer = GradientConversionLayer(MixedPrecisionOptions.for_fp16(initial_loss_scale=4.0, max_grad_norm=0.0))
        >>> gradients, skip = layer.process_gradients({"w": torch.tensor([8.0], dtype=torch.float16)})
        >>> gradients["w"], skip
        (tensor([2.]), False)
    """

    def __init__(
        self,
        options: MixedPrecisionOptions | None = FOR_FP16,
        loss_scaler: DynamicLossScaler | None = None,
        precision_manager: PrecisionManager | None = None,
    ) -> None:
        if options is None:
            raise InvalidArgument("gradient layer: options is None. Pass MixedPrecisionOptions().")
        self._options = options
        self._scaler = loss_scaler or DynamicLossScaler(options)
        self._manager = precision_manager or PrecisionManager(options)
        self._clips = 0
        self._norm = 0.0
        self._offenders: tuple[Offender, ...] = ()

    @property
    def loss_scale(self) -> float:
        """The scale the next loss gets."""
        return self._scaler.active_scale

    @property
    def clip_count(self) -> int:
        """How many steps were clipped."""
        return self._clips

    @property
    def last_gradient_norm(self) -> float:
        """True global norm before clipping; NaN or Inf when the last gradients were not finite."""
        return self._norm

    @property
    def last_offenders(self) -> tuple[Offender, ...]:
        """Who broke in the last call."""
        return self._offenders

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the scale."""
        return self._scaler.scale_loss(loss)

    def process_gradients(self, gradients: Mapping[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], bool]:
        """True clipped FP32 gradients and False; or nothing and True when the step must be skipped.

        Parameters whose gradient is None are left out.
        """
        require_tensors(gradients, "process_gradients", may_miss=True)
        gradients = {name: gradient for name, gradient in gradients.items() if gradient is not None}
        names, tensors = list(gradients), list(gradients.values())
        verdict, scale = judge_gradients(tensors), self._scaler.active_scale
        self._norm = verdict.norm / scale
        self._offenders = name_offenders(names, tensors, verdict)
        if not verdict.is_finite:
            self._scaler.update_scale(True)
            return {}, True
        factor = self._note_clip(clip_coefficient(self._norm, self._options.clip_norm)) / scale
        converted = {name: tensor * factor for name, tensor in self._manager.convert_to_fp32(gradients).items()}
        self._scaler.update_scale(False)
        return converted, False

    def clip_gradients(self, gradients: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copies whose global norm is at most ``max_grad_norm``; non-finite ones are refused."""
        require_tensors(gradients, "clip_gradients", may_miss=True)
        gradients = {name: gradient for name, gradient in gradients.items() if gradient is not None}
        verdict = judge_gradients(list(gradients.values()))
        if not verdict.is_finite:
            raise InvalidArgument("clip_gradients: some are NaN or Inf. Call process_gradients, which skips them.")
        self._norm = verdict.norm
        factor = self._note_clip(clip_coefficient(self._norm, self._options.clip_norm))
        return {name: tensor * factor for name, tensor in gradients.items()}

    def _note_clip(self, coefficient: float) -> float:
        self._clips += coefficient < 1.0
        return coefficient

    def get_stats(self) -> GradientProcessingStats:
        """A snapshot."""
        return describe_gradients(self._options, self._scaler, clips=self._clips, norm=self._norm)

    def reset(self) -> None:
        """Start over, the scaler too."""
        self._clips, self._norm, self._offenders = 0, 0.0, ()
        self._scaler.reset()
