"""Tensor figures: mean, spread, norm, what is not finite and a histogram, a block at a time; pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from model_checkpoint.api.answers.plain_values import number_of

BINS = 32
_BLOCK = 1 << 20  # elements looked at at a time, so that wide temporaries stay small
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFigures:
    """What there is to say about the numbers of one tensor."""

    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    norm: float | None = None
    nan: int | None = None
    inf: int | None = None
    zeros: int | None = None
    hist: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        numbers = {name: number_of(getattr(self, name)) for name in ("mean", "std", "min", "max", "norm")}
        return {**numbers, "nan": self.nan, "inf": self.inf, "zeros": self.zeros, "hist": list(self.hist)}


def figures_of(array: npt.NDArray[Any], advance: Advance = lambda nbytes: None) -> TensorFigures:
    """The figures of an array; of what is no number, none.

    Example:
        >>> figures = figures_of(np.array([0.0, 1.0, 2.0, np.nan]))
        >>> figures.mean, figures.nan, figures.zeros, sum(figures.hist)
        (1.0, 1, 1, 3)
    """
    if not is_number(array.dtype):
        advance(array.nbytes)
        return TensorFigures()
    count = nan = inf = zeros = 0
    total = squares = 0.0
    low, high = math.inf, -math.inf
    for block in _blocks(array):
        wide = _wide(block)
        finite = wide[np.isfinite(wide)]
        nan += int(np.isnan(wide).sum())
        inf += int(np.isinf(wide).sum())
        zeros += int((wide == 0).sum())
        count += finite.size
        if finite.size:
            total += float(finite.sum())
            squares += float(np.square(finite).sum())
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
        advance(block.nbytes)
    if not count:
        return TensorFigures(nan=nan, inf=inf, zeros=zeros, hist=(0,) * BINS)
    mean = total / count
    return TensorFigures(
        mean=mean,
        std=math.sqrt(max(0.0, squares / count - mean * mean)),
        min=low,
        max=high,
        norm=math.sqrt(squares),
        nan=nan,
        inf=inf,
        zeros=zeros,
        hist=histogram(array, low, high),
    )


def histogram(array: npt.NDArray[Any], low: float, high: float) -> tuple[int, ...]:
    """How many finite values lie in each of 32 stretches from ``low`` to ``high``.

    Example:
        >>> histogram(np.arange(64.0), 0.0, 63.0)[:3]
        (2, 2, 2)
    """
    bins = np.zeros(BINS, dtype=np.int64)
    width = (high - low) / BINS
    for block in _blocks(array):
        wide = _wide(block)
        finite = wide[np.isfinite(wide)]
        if width > 0 and math.isfinite(width):
            place = np.clip(((finite - low) / width).astype(np.int64), 0, BINS - 1)
            bins += np.bincount(place, minlength=BINS)
        else:
            bins[BINS // 2] += finite.size
    return tuple(int(one) for one in bins)


def ends_of(array: npt.NDArray[Any]) -> tuple[float, float] | tuple[()]:
    """The least and the greatest finite value; nothing if there is none.

    Example:
        >>> ends_of(np.array([2.0, np.inf, -1.0])), ends_of(np.array([np.nan]))
        ((-1.0, 2.0), ())
    """
    low, high = math.inf, -math.inf
    for block in _blocks(array):
        wide = _wide(block)
        finite = wide[np.isfinite(wide)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else ()


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
    if a.shape != b.shape or not (is_number(a.dtype) and is_number(b.dtype)):
        return None
    gap = before = after = product = worst = 0.0
    changed = 0
    for one, other in zip(_blocks(a), _blocks(b), strict=True):
        x, y = _wide(one), _wide(other)
        changed += int((~((x == y) | (np.isnan(x) & np.isnan(y)))).sum())
        both = np.isfinite(x) & np.isfinite(y)
        x, y = x[both], y[both]
        if x.size:
            distance = np.abs(y - x)
            gap += float(np.square(distance).sum())
            before += float(np.square(np.abs(x)).sum())
            after += float(np.square(np.abs(y)).sum())
            product += float((x * y).sum())
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


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether there is arithmetic on it: also bfloat16 and its kin, which other libraries taught NumPy."""
    return dtype.kind in "biufc" or dtype.isbuiltin == 2


def _blocks(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    flat = array.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        yield flat[start : start + _BLOCK]


def _wide(block: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """As 64-bit floats; of complex numbers the size."""
    if block.dtype.kind in "cW":
        return np.abs(block.astype(np.complex128))
    return block.astype(np.float64)
