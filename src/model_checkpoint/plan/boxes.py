"""Boxes: which bytes of a stored array a slice needs, whatever view of it the slice is taken of."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import prod
from operator import index as as_int
from reprlib import repr as brief
from types import EllipsisType
from typing import NamedTuple

from model_checkpoint.errors import IndexInvalid

Index = int | slice | EllipsisType | tuple["int | slice | EllipsisType", ...]


class Box(NamedTuple):
    """Elements of a stored array: where the first one lies, how many there are, and how far apart, in bytes."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def span(self, itemsize: int) -> tuple[int, int]:
        """The bytes from the lowest to the highest element."""
        if 0 in self.shape:
            return self.offset, self.offset
        reach = [(side - 1) * step for side, step in zip(self.shape, self.strides, strict=True)]
        low = self.offset + sum(step for step in reach if step < 0)
        return low, self.offset + sum(step for step in reach if step > 0) + itemsize


class Part(NamedTuple):
    """A part of a box that is read in one go, and its place in the result."""

    at: tuple[slice, ...]
    box: Box


def box_of(index: Index, whole: Box) -> Box:
    """Return what a basic index (whole numbers, slices, an ellipsis) takes of a view.

    Example:
        >>> box_of((slice(1, 3), 0), Box(0, (4, 5), (40, 8)))
        Box(offset=40, shape=(2,), strides=(40,))
    """
    offset, shape, strides = whole.offset, list[int](), list[int]()
    for axis, part in enumerate(_expand(index, len(whole.shape))):
        side, stride = whole.shape[axis], whole.strides[axis]
        if isinstance(part, slice):
            taken = range(*part.indices(side))
            shape.append(len(taken))
            strides.append(stride * taken.step)
            offset += stride * taken.start if len(taken) else 0
        elif -side <= part < side:
            offset += stride * (part % side)
        else:
            raise IndexInvalid(f"axis {axis}: index {part} is out of range for a side of {side}")
    return Box(offset, tuple(shape), tuple(strides))


def _expand(index: Index, rank: int) -> list[int | slice]:
    parts = list(index) if isinstance(index, tuple) else [index]
    given = [part for part in parts if part is not Ellipsis]
    if len(parts) - len(given) > 1 or len(given) > rank:
        raise IndexInvalid(f"index {index!r} has too many parts for an array of rank {rank}")
    at = next((i for i, part in enumerate(parts) if part is Ellipsis), len(given))
    gap: list[int | slice] = [slice(None)] * (rank - len(given))
    return [*map(_basic, given[:at]), *gap, *map(_basic, given[at:])]


def _basic(part: object) -> int | slice:
    try:
        if isinstance(part, slice):
            part.indices(0)  # asks each of its numbers
            return part
        if not _is_mask_or_list(part):
            return as_int(part)  # type: ignore[arg-type]
        why = ""
    except (TypeError, ValueError) as error:
        why = f" ({error})"
    raise IndexInvalid(f"index {brief(part)}: only whole numbers, slices and one ellipsis{why}; load it and index that")


def _is_mask_or_list(part: object) -> bool:
    """Whether an index means something else than one number, though one could be made of it: True, a list of one."""
    is_mask = isinstance(part, bool) or str(getattr(part, "dtype", "")).endswith("bool")
    return is_mask or bool(getattr(part, "shape", ()))


def parts_of(box: Box, gap: int) -> Iterator[Part]:
    """Cut a box so that whole stretches of ``gap`` bytes between its elements need not be read.

    Example:
        >>> [part.box.span(4) for part in parts_of(Box(8, (3,), (400,)), gap=100)]
        [(8, 12), (408, 412), (808, 812)]
    """
    if prod(box.shape):
        yield from _cut(Part(tuple(slice(0, side) for side in box.shape), box), gap)


def _cut(part: Part, gap: int) -> Iterator[Part]:
    offset, shape, strides = part.box
    wide = [axis for axis, side in enumerate(shape) if side > 1 and abs(strides[axis]) >= gap]
    if not wide:
        yield part
        return
    axis = max(wide, key=lambda one: abs(strides[one]))
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    for i in range(shape[axis]):
        at = (*part.at[:axis], slice(i, i + 1), *part.at[axis + 1 :])
        yield from _cut(Part(at, Box(offset + i * strides[axis], one, strides)), gap)


class Spans:
    """Byte ranges, merged where they overlap or touch; each byte of them is read once."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self.ranges: list[tuple[int, int]] = []
        for start, stop in sorted(ranges):
            if self.ranges and start <= self.ranges[-1][1]:
                self.ranges[-1] = (self.ranges[-1][0], max(stop, self.ranges[-1][1]))
            else:
                self.ranges.append((start, stop))
        self._starts = [start for start, _ in self.ranges]

    def find(self, byte: int) -> int:
        """Which range a byte lies in."""
        return bisect_right(self._starts, byte) - 1
