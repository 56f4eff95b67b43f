"""Number figures: mean, spread, norm, what is not finite and a histogram, a block at a time; pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

_BLOCK = 1 << 20  # elements looked at at a time, so that wide temporaries stay small

Block = npt.NDArray[np.float64]
Blocks = Callable[[], Iterator[Block]]  # asked for twice


class NumberFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How numbers lie; NaN and infinities are counted, and are part of nothing else."""

    count: int
    nan: int
    inf: int
    zeros: int
    min: float | None  # None: no value is a finite number
    max: float | None
    mean: float | None
    std: float | None
    norm: float | None
    histogram: tuple[int, ...]  # counts in equal steps from min to max


def is_real(dtype: np.dtype[Any]) -> bool:
    """Whether its values are real numbers: also bfloat16 and its kin, which other libraries taught NumPy."""
    return dtype.kind in "biuf" or (dtype.isbuiltin == 2 and dtype.kind not in "cW")


def blocks_of(array: npt.NDArray[Any]) -> Iterator[Block]:
    """An array of real numbers as wide blocks."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        yield flat[start : start + _BLOCK].astype(np.float64)


def sum_up(blocks: Blocks, bins: int) -> NumberFigures:
    """The figures of numbers that come in blocks.

    Example:
        >>> figures = sum_up(lambda: iter([np.array([3.0, 4.0]), np.array([np.inf])]), 1)
        >>> figures.norm, figures.inf, figures.histogram
        (5.0, 1, (2,))
    """
    count = nan = zeros = 0
    low, high, moments = math.inf, -math.inf, _Moments()
    for block in blocks():
        good = block[np.isfinite(block)]
        count, nan, zeros = count + block.size, nan + int(np.isnan(block).sum()), zeros + int((block == 0).sum())
        if good.size:
            low, high, moments = min(low, float(good.min())), max(high, float(good.max())), moments.joined(good)
    some = moments.count > 0
    return NumberFigures(
        count=count,
        nan=nan,
        inf=count - moments.count - nan,
        zeros=zeros,
        min=low if some else None,
        max=high if some else None,
        mean=moments.mean if some else None,
        std=math.sqrt(moments.squares / moments.count) if some else None,
        norm=math.sqrt(moments.squares + moments.count * moments.mean * moments.mean) if some else None,
        histogram=histogram(blocks, low, high, bins) if some else (0,) * bins,
    )


class _Moments(msgspec.Struct, frozen=True):
    """Count, mean and squared distances from it; joined block by block, so that a large mean costs no digits."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def joined(self, block: Block) -> _Moments:
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(block.mean())
            squares, gap = float(np.square(block - mean).sum()), mean - self.mean
            count = self.count + block.size
            between = gap * gap * self.count * block.size / count
        return _Moments(count, self.mean + gap * block.size / count, self.squares + squares + between)


def histogram(blocks: Blocks, low: float, high: float, bins: int) -> tuple[int, ...]:
    """How many finite values lie in each of ``bins`` equal stretches from ``low`` to ``high``.

    Example:
        >>> histogram(lambda: blocks_of(np.arange(64)), 0.0, 63.0, 4)
        (16, 16, 16, 16)
    """
    counts = np.zeros(bins, np.int64)
    span = high / 2 - low / 2  # half of it, since all of it may be more than a number can say
    for block in blocks():
        good = block[np.isfinite(block)]
        share = (good / 2 - low / 2) / span if span > 0 else np.full(good.shape, 0.5)
        counts += np.bincount(np.clip((share * bins).astype(np.int64), 0, bins - 1), minlength=bins)
    return tuple(int(count) for count in counts)


def ends_of(array: npt.NDArray[Any]) -> tuple[float, float] | tuple[()]:
    """The least and the greatest finite value of real numbers; nothing if there is none.

    Example:
        >>> ends_of(np.array([2.0, np.inf, -1.0])), ends_of(np.array([np.nan]))
        ((-1.0, 2.0), ())
    """
    finite = (block[np.isfinite(block)] for block in blocks_of(array))
    ends = [(float(block.min()), float(block.max())) for block in finite if block.size]
    return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else ()
