"""Tiling: whether the pieces of an array make up the whole, each element once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod

from model_checkpoint.plan.sharding.regions import ArrayBox

_FEW = 16  # pairs of so few are sooner compared one by one
_AT_ONCE = 1 << 22  # comparisons worked on together


def tiles(shape: Sequence[int], boxes: Sequence[ArrayBox]) -> bool:
    """Whether ``boxes`` lie in an array of ``shape`` and hold each of its elements once.

    Example:
        >>> tiles((4,), [ArrayBox((0,), (3,)), ArrayBox((3,), (1,))]), tiles((4,), [ArrayBox((1,), (3,))])
        (True, False)
    """
    sound = all(
        len(box.offsets) == len(box.sizes) == len(shape)
        and all(
            start >= 0 and size > 0 and start + size <= side
            for start, size, side in zip(box.offsets, box.sizes, shape, strict=True)
        )
        for box in boxes
    )
    return sound and sum(box.elements for box in boxes) == prod(shape) and not _overlapping(boxes)


def covers(box: ArrayBox, pieces: Sequence[ArrayBox]) -> bool:
    """Whether ``pieces``, which may reach beyond it, hold each element of a box once.

    Example:
        >>> covers(ArrayBox((1,), (3,)), [ArrayBox((0,), (2,)), ArrayBox((2,), (9,))])
        True
    """
    inner = [common for piece in pieces if (common := box.common(piece)) is not None]
    return sum(one.elements for one in inner) == box.elements and not _overlapping(inner)


def _overlapping(boxes: Sequence[ArrayBox]) -> bool:
    if len(boxes) <= _FEW or not boxes[0].sizes:
        return any(one.common(other) is not None for one, other in combinations(boxes, 2))
    import numpy as np  # which nobody needs who reads what one process, or a few, wrote

    lower = np.array([box.offsets for box in boxes], np.int64)
    upper = lower + np.array([box.sizes for box in boxes], np.int64)
    order = np.lexsort(lower.T[::-1])
    lower, upper = lower[order], upper[order]
    rows = max(1, _AT_ONCE // len(boxes))
    for first in range(0, len(boxes), rows):
        some = slice(first, first + rows)
        common = np.ones((len(lower[some]), len(boxes)), bool)
        for axis in range(lower.shape[1]):
            common &= lower[some, axis, None] < upper[None, :, axis]
            common &= lower[None, :, axis] < upper[some, axis, None]
        if int(common.sum()) > len(lower[some]):  # each has itself in common
            return True
    return False
