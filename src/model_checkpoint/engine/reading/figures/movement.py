"""Movement: how far one tensor is from another, a block at a time; pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_BLOCK = 1 << 20  # elements looked at at a time, so that wide temporaries stay small
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """How far one tensor moved, over the elements that are finite on both sides."""

    gap: float  # norm of the difference
    before: float
    after: float
    product: float
    max_abs: float
    changed: int

    @property
    def rel(self) -> float | None:
        """The gap relative to what was before."""
        return self.gap / self.before if self.before else (0.0 if not self.gap else math.inf)

    @property
    def cos(self) -> float | None:
        """The cosine of the angle between both; None if one of them is zero."""
        size = self.before * self.after
        return max(-1.0, min(1.0, self.product / size)) if size else None


def movement_of(a: npt.NDArray[Any], b: npt.NDArray[Any], advance: Advance = lambda nbytes: None) -> Movement | None:
    """How far ``b`` is from ``a``; None where no difference is defined.

    Example:
        >>> moved = movement_of(np.array([3.0, 4.0]), np.array([3.0, 8.0]))
        >>> moved.gap, moved.rel, moved.changed
        (4.0, 0.8, 1)
    """
    if a.shape != b.shape or not (_is_number(a.dtype) and _is_number(b.dtype)):
        return None
    gap = before = after = product = worst = 0.0
    changed = 0
    for one, other in zip(_blocks(a), _blocks(b), strict=True):
        x, y = _wide(one), _wide(other)
        changed += int((~((one == other) | (np.isnan(x) & np.isnan(y)))).sum())  # as they are: wide ones lose digits
        both = np.isfinite(x) & np.isfinite(y)
        x, y = x[both], y[both]
        if x.size:
            distance = np.abs(y - x)
            gap += float(np.square(distance).sum())
            before += float(np.square(np.abs(x)).sum())
            after += float(np.square(np.abs(y)).sum())
            product += float((x * y.conj()).sum().real)
            worst = max(worst, float(distance.max()))
        advance(one.nbytes + other.nbytes)
    return Movement(
        gap=math.sqrt(gap),
        before=math.sqrt(before),
        after=math.sqrt(after),
        product=product,
        max_abs=worst,
        changed=changed,
    )


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc" or dtype.isbuiltin == 2


def _blocks(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    flat = array.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        yield flat[start : start + _BLOCK]


def _wide(block: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return block.astype(np.complex128 if block.dtype.kind in "cW" else np.float64)
