"""Boxes: which bytes of an array a slice needs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import EllipsisType
from typing import NamedTuple

Index = int | slice | EllipsisType | tuple["int | slice | EllipsisType", ...]


class Box(NamedTuple):
    """A slice of an array: whole rows to read, and what to take from them."""

    start: int  # first byte of the rows
    stop: int
    rows: tuple[int, ...]  # shape of the rows read
    inner: tuple[int | slice, ...]  # index into the rows
    shape: tuple[int, ...]  # shape of the result


def box_of(index: Index, shape: Sequence[int], itemsize: int) -> Box:
    """Turn a basic index (whole numbers, slices of step 1, an ellipsis) into the rows to read.

    Example:
        >>> box_of((slice(1, 3), 0), (4, 5), 8)
        Box(start=40, stop=120, rows=(2, 5), inner=(slice(0, 2, None), 0), shape=(2,))
    """
    full = _expand(index, len(shape))
    if not shape:
        return Box(0, itemsize, (), (), ())
    spans = [_span(part, side, axis) for axis, (part, side) in enumerate(zip(full, shape, strict=True))]
    row = itemsize * prod(shape[1:])
    first, last = spans[0]
    inner: list[int | slice] = [0 if isinstance(full[0], int) else slice(0, last - first)]
    inner += [a if isinstance(part, int) else slice(a, b) for part, (a, b) in zip(full[1:], spans[1:], strict=True)]
    kept = tuple(b - a for part, (a, b) in zip(full, spans, strict=True) if not isinstance(part, int))
    return Box(first * row, last * row, (last - first, *shape[1:]), tuple(inner), kept)


def _expand(index: Index, rank: int) -> list[int | slice]:
    parts = list(index) if isinstance(index, tuple) else [index]
    if sum(part is Ellipsis for part in parts) > 1 or len(parts) - (Ellipsis in parts) > rank:
        raise IndexError(f"index {index!r} has too many parts for an array of rank {rank}")
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    at = next(i for i, part in enumerate(parts) if part is Ellipsis)
    gap: list[int | slice] = [slice(None)] * (rank - len(parts) + 1)
    return [p for p in (*parts[:at], *gap, *parts[at + 1 :]) if not isinstance(p, EllipsisType)]


def _span(part: int | slice, side: int, axis: int) -> tuple[int, int]:
    if isinstance(part, slice):
        start, stop, step = part.indices(side)
        if step != 1:
            raise IndexError(f"axis {axis}: slices of step 1 only, got step {step}; load the rows and stride in memory")
        return start, max(start, stop)
    if not -side <= part < side:
        raise IndexError(f"axis {axis}: index {part} is out of range for a side of {side}")
    at = part % side
    return at, at + 1
