"""Movement: how far one tensor is from another, a block at a time; pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_BLOCK = 1 << 20  # elements looked at at a time, so that wide temporaries stay small
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """How far one tensor moved; norms are of the elements that are finite on both sides."""

    gap: float  # norm of the difference
    before: float
    after: float
    product: float
    max_abs: float  # of all elements, so that a new NaN makes it NaN; equal infinities and NaN on both sides are 0
    mean_abs: float
    changed: int
    spoiled: int  # elements that were finite and are not any more
    compared: int  # elements that are finite on both sides

    @property
    def rel(self) -> float | None:
        """The gap relative to what was before: infinite from zero, None if nothing is finite on both sides."""
        if not self.compared:
            return None
        return self.gap / self.before if self.before else (0.0 if not self.gap else math.inf)

    @property
    def cos(self) -> float | None:
        """The cosine of the angle between both; None if one of them is zero."""
        size = self.before * self.after
        return max(-1.0, min(1.0, self.product / size)) if size else None


class _Sums(NamedTuple):
    """What one block adds."""

    worst: float = 0.0
    total: float = 0.0
    gap: float = 0.0  # this and the next two are squares
    before: float = 0.0
    after: float = 0.0
    product: float = 0.0
    changed: int = 0
    spoiled: int = 0
    compared: int = 0


def movement_of(a: npt.NDArray[Any], b: npt.NDArray[Any], advance: Advance = lambda nbytes: None) -> Movement | None:
    """How far ``b`` is from ``a``; None where no difference is defined.

    Example:
        >>> moved = movement_of(np.array([3.0, 4.0, 0.0]), np.array([3.0, 8.0, np.nan]))
        >>> moved.gap, moved.rel, moved.changed, moved.spoiled
        (4.0, 0.8, 2, 1)
    """
    if a.shape != b.shape or not (_is_number(a.dtype) and _is_number(b.dtype)):
        return None
    blocks = [_Sums()]
    for one, other in zip(_blocks(a), _blocks(b), strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            blocks.append(_sums(one, other))
        advance(one.nbytes + other.nbytes)
    worst, *columns = zip(*blocks, strict=True)
    total, gap, before, after, product, changed, spoiled, compared = map(sum, columns)
    return Movement(
        gap=math.sqrt(gap),
        before=math.sqrt(before),
        after=math.sqrt(after),
        product=product,
        max_abs=float(np.max(worst)),  # a NaN stays
        mean_abs=total / max(1, a.size),
        changed=changed,
        spoiled=spoiled,
        compared=compared,
    )


def _sums(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> _Sums:
    x, y = _wide(one), _wide(other)
    equal = one == other if one.dtype == other.dtype else x == y  # as they are: wide ones lose digits
    alike = equal | (np.isnan(x) & np.isnan(y))
    distance = np.where(alike, 0.0, _distance(one, other, x, y))
    whole, still = np.isfinite(x), np.isfinite(y)
    both = whole & still
    x, y = x[both], y[both]
    return _Sums(
        worst=float(distance.max()),
        total=float(distance.sum()),
        gap=float(np.square(distance[both]).sum()),
        before=float(np.square(np.abs(x)).sum()),
        after=float(np.square(np.abs(y)).sum()),
        product=float((x * y.conj()).sum().real),
        changed=int(alike.size - alike.sum()),
        spoiled=int((whole & ~still).sum()),
        compared=x.size,
    )


def rank(spoiled: int, moved: float | None) -> tuple[int, float]:
    """Where a tensor stands among those that moved, for sorting, by a figure that grows as it moves.

    What has new NaN or infinities comes first, then what moved most; what has no distance is last.

    Example:
        >>> found = {"a": (0, 0.1), "nan": (3, 0.0), "shape": (0, None), "zero": (0, math.inf)}
        >>> sorted(found, key=lambda name: rank(*found[name]))
        ['nan', 'zero', 'a', 'shape']
    """
    if spoiled:
        return 0, -float(spoiled)
    return (2, 0.0) if moved is None or math.isnan(moved) else (1, -moved)


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc" or dtype.isbuiltin == 2  # 2: a number another library taught NumPy, such as bfloat16


def _blocks(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    flat = array.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        yield flat[start : start + _BLOCK]


def _distance(
    one: npt.NDArray[Any], other: npt.NDArray[Any], x: npt.NDArray[Any], y: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Absolute differences; those of whole numbers are exact until they are made wide."""
    if one.dtype == other.dtype and one.dtype.kind in "iu":
        whole: npt.NDArray[Any] = np.maximum(one, other).astype(np.uint64) - np.minimum(one, other).astype(np.uint64)
        return whole.astype(np.float64)  # wrapped to the right value
    gap: npt.NDArray[Any] = np.abs(y - x)
    return gap


def _wide(block: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return block.astype(np.complex128 if block.dtype.kind in "cW" else np.float64)
