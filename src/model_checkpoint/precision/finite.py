"""Finite: one pass over the gradients that says their true norm, or which parameters broke and how.

The norms are taken anyway for clipping; a NaN or Inf in one of them names its tensor for free. Norms of half
gradients are accumulated in FP32 (a native half norm overflows at 65504), and a norm that overflowed although every
element is finite is taken again, scaled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

COUNTED_ELEMENTS = 1 << 17  # exact NaN/Inf counts up to this many elements per step; beyond, a lower bound
COUNTED_TENSORS = 8
_UPCAST_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """One parameter whose gradient is not finite."""

    name: str
    kind: str  # "nan", "inf" or "nan+inf"
    nan_count: int
    inf_count: int
    exact: bool  # False: the counts are lower bounds, the tensor was beyond the counting cap

    def __str__(self) -> str:
        at_least = "" if self.exact else "at least "
        return f"{self.name}: {self.kind} ({at_least}{self.nan_count} NaN, {self.inf_count} Inf)"

    def to_tree(self) -> dict[str, Any]:
        """Plain values, one per field."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one look at all gradients found."""

    norm: float  # of the gradients as given, still scaled; NaN or Inf when there are offenders
    bad: tuple[int, ...] = ()
    norms: tuple[float, ...] = ()

    @property
    def is_finite(self) -> bool:
        """Whether the step may be applied."""
        return not self.bad


@torch.no_grad()
def judge_gradients(gradients: Sequence[torch.Tensor]) -> Verdict:
    """The global norm, and the positions of gradients that are not finite.

    Example:
        >>> judge_gradients([torch.tensor([3.0]), torch.tensor([4.0])]).norm
        5.0
        >>> judge_gradients([torch.tensor([3.0]), torch.tensor([float("inf")])]).bad
        (1,)
    """
    norms = _take_norms(gradients)
    suspects = [place for place, norm in enumerate(norms) if not math.isfinite(norm)]
    if suspects and not _is_proven(gradients, norms, suspects):
        for place in suspects:
            norms[place] = _safe_norm(gradients[place])
        suspects = []
    total = math.sqrt(math.fsum(norm * norm for norm in norms)) if not suspects else _worst(norms)
    return Verdict(norm=total, bad=tuple(suspects), norms=tuple(norms))


def _take_norms(gradients: Sequence[torch.Tensor]) -> list[float]:
    if not gradients:
        return []
    taken = [torch.linalg.vector_norm(one) if one.dtype == torch.float32 else _norm_of_half(one) for one in gradients]
    device = taken[0].device
    # one transfer for all norms
    values: list[float] = torch.stack([norm.to(device) for norm in taken]).tolist()
    return values


def _norm_of_half(gradient: torch.Tensor) -> torch.Tensor:
    if gradient.numel() <= _UPCAST_ELEMENTS or not gradient.is_contiguous():
        whole: torch.Tensor = torch.linalg.vector_norm(gradient.float())
        return whole
    pieces = torch.split(gradient.view(-1), _UPCAST_ELEMENTS)
    scratch = torch.empty(_UPCAST_ELEMENTS, dtype=torch.float32, device=gradient.device)
    parts = [torch.linalg.vector_norm(scratch[: piece.numel()].copy_(piece)) for piece in pieces]
    joined: torch.Tensor = torch.linalg.vector_norm(torch.stack(parts))
    return joined


def _is_proven(gradients: Sequence[torch.Tensor], norms: Sequence[float], suspects: Sequence[int]) -> bool:
    """A NaN norm is proof; an Inf one may be the overflow of the norm itself, so the largest element decides."""
    if any(math.isnan(norms[place]) for place in suspects):
        return True
    smallest_first = sorted(suspects, key=lambda place: gradients[place].numel())
    return any(not math.isfinite(_largest(gradients[place])) for place in smallest_first)


def _largest(gradient: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(gradient, ord=math.inf)) if gradient.numel() else 0.0


def _safe_norm(gradient: torch.Tensor) -> float:
    largest = _largest(gradient)
    return largest * float(torch.linalg.vector_norm(gradient.float() / largest)) if largest else 0.0


def _worst(norms: Sequence[float]) -> float:
    return math.nan if any(math.isnan(norm) for norm in norms) else math.inf


@torch.no_grad()
def name_offenders(names: Sequence[str], gradients: Sequence[torch.Tensor], verdict: Verdict) -> tuple[Offender, ...]:
    """Who broke and how; counts are exact until the counting cap is used up.

    Example:
        >>> bad = [torch.tensor([1.0, float("nan"), float("inf")])]
        >>> print(*name_offenders(["w"], bad, judge_gradients(bad)))
        w: nan+inf (1 NaN, 1 Inf)
    """
    budget, offenders = COUNTED_ELEMENTS, []
    for order, place in enumerate(verdict.bad):
        looked_at = min(budget, gradients[place].numel()) if order < COUNTED_TENSORS else 0
        budget -= looked_at
        offenders.append(_describe(names[place], gradients[place], verdict.norms[place], looked_at))
    return tuple(offenders)


def _describe(name: str, gradient: torch.Tensor, norm: float, looked_at: int) -> Offender:
    nans, infs = _count_nonfinite(gradient, looked_at)
    has_nan, has_inf = nans > 0 or math.isnan(norm), infs > 0 or math.isinf(norm)
    kind = "nan+inf" if has_nan and has_inf else "nan" if has_nan else "inf"
    return Offender(name=name, kind=kind, nan_count=nans, inf_count=infs, exact=looked_at == gradient.numel())


def _count_nonfinite(gradient: torch.Tensor, looked_at: int) -> tuple[int, int]:
    if looked_at == 0:
        return 0, 0
    part = gradient.detach().reshape(-1)[:looked_at] if looked_at < gradient.numel() else gradient.detach()
    # x - x is 0 for finite elements and NaN for all others; cheaper than isfinite
    broken = int(torch.count_nonzero(torch.isnan(part - part)))
    nans = int(torch.count_nonzero(torch.isnan(part)))
    return nans, broken - nans
