"""Preflight: what a change of precision would do to the weights, before it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from model_checkpoint.precision.settings.number_formats import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionChange:
    """How many weights, by name, a precision cannot hold."""

    target: Precision
    overflowing: Mapping[str, int] = field(default_factory=dict)  # become Inf
    vanishing: Mapping[str, int] = field(default_factory=dict)  # non-zero, become zero

    @property
    def is_safe(self) -> bool:
        """Whether no weight becomes Inf."""
        return not self.overflowing


@torch.no_grad()
def check_precision_change(masters: Mapping[str, torch.Tensor], target: Precision) -> PrecisionChange:
    """Count the weights that overflow or vanish in ``target``.

    Example:
        >>> check_precision_change({"w": torch.tensor([70000.0, 1e-9, 1.0])}, Precision.FP16).overflowing
        {'w': 1}
    """
    overflowing, vanishing = {}, {}
    for name, master in masters.items():
        cast = master.to(target.dtype)
        lost = int((torch.isinf(cast) & torch.isfinite(master)).sum())
        gone = int(((cast == 0) & (master != 0)).sum())
        if lost:
            overflowing[name] = lost
        if gone:
            vanishing[name] = gone
    return PrecisionChange(target=target, overflowing=overflowing, vanishing=vanishing)
