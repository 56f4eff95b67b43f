"""Regions: boxes of elements of an array, what two have in common, and which boxes make up a run of elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple


class ArrayBox(NamedTuple):
    """Elements ``[offset, offset + size)`` along each dimension of an array."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many there are."""
        return prod(self.sizes)

    def common(self, other: ArrayBox) -> ArrayBox | None:
        """What lies in both; None if nothing does.

        Example:
            >>> ArrayBox((0, 2), (4, 4)).common(ArrayBox((3, 0), (4, 3)))
            ArrayBox(offsets=(3, 2), sizes=(1, 1))
        """
        offsets, sizes = list[int](), list[int]()
        for a, m, b, n in zip(self.offsets, self.sizes, other.offsets, other.sizes, strict=True):
            start = a if a > b else b  # plain words: asked for every piece of every array, most often in vain
            size = (a + m if a + m < b + n else b + n) - start
            if size <= 0:
                return None
            offsets.append(start)
            sizes.append(size)
        return ArrayBox(tuple(offsets), tuple(sizes))

    def within(self, offsets: Sequence[int]) -> ArrayBox:
        """The same elements, counted from ``offsets`` on."""
        return ArrayBox(tuple(a - b for a, b in zip(self.offsets, offsets, strict=True)), self.sizes)

    def slices(self) -> tuple[slice, ...]:
        """The index that takes it out of the array."""
        return tuple(slice(start, start + size) for start, size in zip(self.offsets, self.sizes, strict=True))


def whole(shape: Sequence[int]) -> ArrayBox:
    """All of an array."""
    return ArrayBox((0,) * len(shape), tuple(shape))


def run_boxes(sizes: Sequence[int], start: int, stop: int) -> Iterator[ArrayBox]:
    """Yield the boxes that hold, one after the other, the elements ``[start, stop)`` in C order.

    Example:
        >>> [(box.offsets, box.sizes) for box in run_boxes((3, 4), 2, 9)]
        [((0, 2), (1, 2)), ((1, 0), (1, 4)), ((2, 0), (1, 1))]
    """
    if start >= stop:
        return
    if not sizes:
        yield ArrayBox((), ())
        return
    row = prod(sizes[1:])
    first, last = start // row, (stop - 1) // row
    if first == last:
        yield from _under(first, sizes, start - first * row, stop - first * row)
        return
    if start > first * row:
        yield from _under(first, sizes, start - first * row, row)
        first += 1
    full = stop // row
    if full > first:
        yield ArrayBox((first, *(0,) * (len(sizes) - 1)), (full - first, *sizes[1:]))
    if stop > full * row:
        yield from _under(full, sizes, 0, stop - full * row)


def _under(index: int, sizes: Sequence[int], start: int, stop: int) -> Iterator[ArrayBox]:
    """The boxes of a run that lies within one index of the first dimension."""
    for box in run_boxes(sizes[1:], start, stop):
        yield ArrayBox((index, *box.offsets), (1, *box.sizes))


def byte_runs(box: ArrayBox, shape: Sequence[int], itemsize: int, *, gap: int) -> list[tuple[int, int]]:
    """The bytes of an array in C order that hold a box; runs less than ``gap`` bytes apart are one.

    Example:
        >>> byte_runs(ArrayBox((1, 0), (2, 2)), (4, 8), 4, gap=0)
        [(32, 40), (64, 72)]
    """
    if not box.elements:
        return []
    strides = [itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape))]
    start = sum(offset * step for offset, step in zip(box.offsets, strides, strict=True))
    length, axis = itemsize, len(shape)
    while axis and (length == strides[axis - 1] or strides[axis - 1] - length < gap):
        axis -= 1
        length += (box.sizes[axis] - 1) * strides[axis]
    starts = [start]
    for outer in range(axis - 1, -1, -1):
        starts = [one + i * strides[outer] for i in range(box.sizes[outer]) for one in starts]
    return [(one, one + length) for one in starts]
