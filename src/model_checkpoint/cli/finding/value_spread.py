"""Value spread: how the values of each tensor of a checkpoint lie, verified, a bounded piece of memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.option_checks import require, require_selection
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.reading.slices import load_slice
from model_checkpoint.engine.root.describe import TensorLine, describe_state
from model_checkpoint.engine.root.refs import Reference
from model_checkpoint.errors import OptionInvalid, UnsupportedType
from model_checkpoint.plan import Index, matcher

_AT_ONCE = 64 << 20  # bytes of a tensor in memory; one that is larger is read twice
_MOST_BINS = 1000

Block = npt.NDArray[np.float64]
Blocks = Callable[[], Iterator[Block]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSpread:
    """How values lie; NaN and infinities are counted, and are part of nothing else."""

    count: int
    nan: int
    inf: int
    zeros: int
    min: float | None  # None: no value is a finite number
    max: float | None
    mean: float | None
    std: float | None
    histogram: tuple[int, ...]  # counts in equal steps from min to max


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpread:
    """One tensor; ``figures`` is None where its values are no real numbers."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    figures: ValueSpread | None


def tensor_spreads(
    ref: Reference, *, parts: str | Sequence[str] | None = None, bins: int = 16, progress: Listen = None
) -> list[TensorSpread]:
    """Read the tensors of a checkpoint, or of some of its parts, and say how the values of each lie.

    Example:
        >>> import model_checkpoint as mc, numpy as np
        >>> _ = mc.save("memory://doc-spread", {"w": np.array([0.0, 1.0, 2.0, np.nan])}, step=1)
        >>> figures = tensor_spreads("memory://doc-spread", bins=2)[0].figures
        >>> figures.mean, figures.nan, figures.histogram
        (1.0, 1, (1, 2))
    """
    require(progress=progress)
    require_selection(parts=parts, rename=None, types=())
    if not isinstance(bins, int) or not 1 <= bins <= _MOST_BINS:
        raise OptionInvalid(f"bins must be a whole number from 1 to {_MOST_BINS}, got {bins!r}.")
    told, wanted = describe_state(ref), matcher(parts)
    lines = [line for line in told.tensors if wanted(line.name)]
    with listening(progress, "reading") as emit:
        meter = Meter("figures", sum(line.nbytes for line in lines), emit)
        return [_examined(told.info, line, bins, meter) for line in lines]


def _examined(ref: Reference, line: TensorLine, bins: int, meter: Meter) -> TensorSpread:
    figures = None
    try:
        if len(indices := _pieces(line)) == 1:
            whole = _as_numbers(load_slice(ref, line.name, indices[0], framework="numpy"))
            figures = None if whole is None else spread_of(lambda: iter([whole]), bins)
        else:
            figures = _in_pieces(ref, line, indices, bins)
    except UnsupportedType:  # NumPy has no such dtype
        figures = None
    meter.add(line.nbytes)
    return TensorSpread(name=line.name, dtype=line.dtype, shape=line.shape, nbytes=line.nbytes, figures=figures)


def _in_pieces(ref: Reference, line: TensorLine, indices: Sequence[Index], bins: int) -> ValueSpread | None:
    first = _as_numbers(load_slice(ref, line.name, indices[0], framework="numpy"))
    if first is None:
        return None

    def blocks() -> Iterator[Block]:
        for index in indices:
            piece = _as_numbers(load_slice(ref, line.name, index, framework="numpy"))
            assert piece is not None  # one dtype for all of it
            yield piece

    return spread_of(blocks, bins)


def _pieces(line: TensorLine) -> list[Index]:
    """Rows that fit into memory together; a tensor without rows is one piece."""
    if line.nbytes <= _AT_ONCE or not line.shape:
        return [...]
    rows = max(1, _AT_ONCE * line.shape[0] // line.nbytes)
    return [(slice(start, start + rows),) for start in range(0, line.shape[0], rows)]


def _as_numbers(piece: Any) -> Block | None:
    array = np.asarray(piece)
    real = array.dtype.kind in "biuf" or (array.dtype.isbuiltin == 2 and array.dtype.kind != "c")
    return array.reshape(-1).astype(np.float64) if real else None


def spread_of(blocks: Blocks, bins: int) -> ValueSpread:
    """How values lie that come in blocks, which are asked for twice.

    Example:
        >>> spread_of(lambda: iter([np.array([1.0, 2.0]), np.array([np.inf])]), 1).histogram
        (2,)
    """
    count = nan = zeros = 0
    low, high, moments = np.inf, -np.inf, _Moments()
    for block in blocks():
        good = block[np.isfinite(block)]
        count, nan, zeros = count + block.size, nan + int(np.isnan(block).sum()), zeros + int((block == 0).sum())
        if good.size:
            low, high, moments = min(low, float(good.min())), max(high, float(good.max())), moments.joined(good)
    some = moments.count > 0
    return ValueSpread(
        count=count,
        nan=nan,
        inf=count - moments.count - nan,
        zeros=zeros,
        min=low if some else None,
        max=high if some else None,
        mean=moments.mean if some else None,
        std=float(np.sqrt(moments.squares / moments.count)) if some else None,
        histogram=_histogram(blocks, low, high, bins) if some else (0,) * bins,
    )


@dataclass(frozen=True, slots=True)
class _Moments:
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


def _histogram(blocks: Blocks, low: float, high: float, bins: int) -> tuple[int, ...]:
    counts = np.zeros(bins, np.int64)
    span = high / 2 - low / 2  # half of it, since all of it may be more than a number can say
    for block in blocks():
        good = block[np.isfinite(block)]
        share = (good / 2 - low / 2) / span if span > 0 else np.full(good.shape, 0.5)
        counts += np.bincount(np.minimum((share * bins).astype(np.int64), bins - 1), minlength=bins)
    return tuple(int(count) for count in counts)
