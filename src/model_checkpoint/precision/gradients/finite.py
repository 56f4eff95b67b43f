"""Finite: one pass over the gradients that says their true norm, or which parameters broke and how.

The norms are taken anyway for clipping, piece by piece; a NaN or Inf in one of them names its tensor and its place for
free. Norms of half gradients are accumulated in FP32 (a native half norm overflows at 65504), and a norm that
overflowed although every element is finite is taken again, scaled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

PIECE_ELEMENTS = 1 << 18
COUNTED_ELEMENTS = 1 << 18  # NaN and Inf are counted in this many elements per step; beyond, a lower bound
COUNTED_TENSORS = 8
_PROOF_ELEMENTS = 1 << 13


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


@dataclass(frozen=True, slots=True, eq=False)
class _GradientPiece:
    """A run of elements of one gradient, with its norm."""

    owner: int
    values: torch.Tensor
    norm: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verdict:
    """What one look at all gradients found."""

    norm: float  # of the gradients as given, still scaled; NaN or Inf when there are offenders
    bad: tuple[int, ...] = ()
    pieces: tuple[_GradientPiece, ...] = ()  # where the offenders broke

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
    owners, parts = _cut_all(gradients)
    norms = _take_norms(parts)
    suspects = [place for place, norm in enumerate(norms) if not math.isfinite(norm)]
    if not suspects:
        return Verdict(norm=math.sqrt(math.fsum(norm * norm for norm in norms)))
    pieces = tuple(_GradientPiece(owners[place], parts[place], norms[place]) for place in suspects)
    if any(map(_is_proven, pieces)):
        worst = math.nan if any(math.isnan(piece.norm) for piece in pieces) else math.inf
        return Verdict(norm=worst, bad=tuple(sorted({piece.owner for piece in pieces})), pieces=pieces)
    for place in suspects:
        norms[place] = _safe_norm(parts[place])
    return Verdict(norm=_root_of_squares(norms))


def _cut_all(gradients: Sequence[torch.Tensor]) -> tuple[list[int], list[torch.Tensor]]:
    owners: list[int] = []
    parts: list[torch.Tensor] = []
    for place, gradient in enumerate(gradients):
        whole = gradient.numel() <= PIECE_ELEMENTS or not gradient.is_contiguous()
        cut = (gradient,) if whole else torch.split(gradient.view(-1), PIECE_ELEMENTS)
        parts.extend(cut)
        owners.extend([place] * len(cut))
    return owners, parts


def _take_norms(parts: Sequence[torch.Tensor]) -> list[float]:
    if not parts:
        return []
    scratch: torch.Tensor | None = None
    taken = []
    for part in parts:
        if part.dtype == torch.float32:
            taken.append(torch.linalg.vector_norm(part))
            continue
        if scratch is None or scratch.numel() < part.numel() or scratch.device != part.device:
            scratch = torch.empty(max(PIECE_ELEMENTS, part.numel()), dtype=torch.float32, device=part.device)
        taken.append(torch.linalg.vector_norm(scratch[: part.numel()].copy_(part.reshape(-1))))
    # one transfer for all norms
    values: list[float] = torch.stack([norm.to(taken[0].device) for norm in taken]).tolist()
    return values


def _is_proven(piece: _GradientPiece) -> bool:
    """A NaN norm is proof; an Inf one may be the overflow of the norm itself, so the elements there decide."""
    if math.isnan(piece.norm):
        return True
    for part in torch.split(piece.values.reshape(-1), _PROOF_ELEMENTS):
        if not math.isfinite(float(torch.linalg.vector_norm(part))) and not bool(torch.isfinite(part).all()):
            return True
    return False


def _safe_norm(gradient: torch.Tensor) -> float:
    """The norm of a gradient whose squares overflow, so that its largest element is not 0."""
    largest = float(gradient.abs().max())
    return largest * float(torch.linalg.vector_norm(gradient.float() / largest))


def _root_of_squares(norms: Sequence[float]) -> float:
    largest = max(norms)
    return largest * math.sqrt(math.fsum((norm / largest) ** 2 for norm in norms))


@torch.no_grad()
def name_offenders(names: Sequence[str], gradients: Sequence[torch.Tensor], verdict: Verdict) -> tuple[Offender, ...]:
    """Who broke and how; counts are exact until the counting cap is used up.

    Example:
        >>> bad = [torch.tensor([1.0, float("nan"), float("inf")])]
        >>> print(*name_offenders(["w"], bad, judge_gradients(bad)))
        w: nan+inf (1 NaN, 1 Inf)
    """
    budget, offenders = COUNTED_ELEMENTS, []
    by_owner: dict[int, list[_GradientPiece]] = {}
    for piece in verdict.pieces:
        by_owner.setdefault(piece.owner, []).append(piece)
    for order, place in enumerate(verdict.bad):
        offender, looked_at = _describe(names[place], by_owner[place], budget if order < COUNTED_TENSORS else 0)
        budget -= looked_at
        offenders.append(offender)
    return tuple(offenders)


def _describe(name: str, pieces: Sequence[_GradientPiece], budget: int) -> tuple[Offender, int]:
    nans = infs = looked_at = 0
    exact = True
    for piece in pieces:  # elements outside these are known to be finite
        room = min(budget - looked_at, piece.values.numel())
        exact = exact and room == piece.values.numel()
        more_nans, more_infs = _count_nonfinite(piece.values, room)
        nans, infs, looked_at = nans + more_nans, infs + more_infs, looked_at + room
    has_nan = any(math.isnan(piece.norm) for piece in pieces)
    has_inf = infs > 0 or any(math.isinf(piece.norm) for piece in pieces)
    kind = "nan+inf" if has_nan and has_inf else "nan" if has_nan else "inf"
    return Offender(name=name, kind=kind, nan_count=nans, inf_count=infs, exact=exact), looked_at


def _count_nonfinite(values: torch.Tensor, looked_at: int) -> tuple[int, int]:
    part = values.detach().reshape(-1)[:looked_at]
    # x - x is 0 for finite elements and NaN for all others; cheaper than isfinite
    broken = int(torch.count_nonzero(torch.isnan(part - part)))
    nans = int(torch.count_nonzero(torch.isnan(part)))
    return nans, broken - nans
