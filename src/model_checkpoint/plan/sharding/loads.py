"""Loads: how many bytes of many arrays each part of a mesh holds, and how to level what several ranks may write.

Arithmetic on whole numbers only, so that every rank comes to the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod

import numpy as np
import numpy.typing as npt

from model_checkpoint.manifest import Layout
from model_checkpoint.plan.sharding.holders import cut_order

Ints = npt.NDArray[np.int64]

_CELLS = 1 << 20  # numbers worked on at once, so that memory does not grow with arrays or ranks


def group_ranks(layout: Layout) -> Ints:
    """The ranks of a mesh, a row for each part of an array: those that hold that part.

    Example:
        >>> from model_checkpoint.manifest import Placement
        >>> group_ranks(Layout(mesh=(2, 2), ranks=(0, 1, 2, 3), placements=(Placement(), Placement(0)))).tolist()
        [[0, 2], [1, 3]]
    """
    grid = np.array(layout.ranks, np.int64).reshape(layout.mesh)
    cut = [axis for axis, placement in enumerate(layout.placements) if not placement.replicated]
    rest = [axis for axis, placement in enumerate(layout.placements) if placement.replicated]
    parts = prod(layout.mesh[axis] for axis in cut)
    return grid.transpose(*cut, *rest).reshape(parts, -1)


def held_bytes(layout: Layout, arrays: Iterable[tuple[tuple[int, ...], int]]) -> Ints:
    """Bytes of all ``arrays`` (shape, size of an element) that each part of a mesh holds, as in :func:`group_ranks`.

    Example:
        >>> from model_checkpoint.manifest import Placement
        >>> held_bytes(Layout(mesh=(2,), ranks=(0, 1), placements=(Placement(0),)), [((3, 4), 2)]).tolist()
        [16, 8]
    """
    by_rank: dict[int, Counter[tuple[tuple[int, ...], int]]] = {}
    for shape, itemsize in arrays:
        by_rank.setdefault(len(shape), Counter())[shape, itemsize] += 1
    sides = [
        1 if placement.replicated else side for side, placement in zip(layout.mesh, layout.placements, strict=True)
    ]
    total = np.zeros(prod(sides), np.int64)
    step = max(1, _CELLS // max(1, prod(sides)))
    for counted in by_rank.values():
        rows = list(counted.items())
        for first in range(0, len(rows), step):
            total += _batch_bytes(layout, rows[first : first + step])
    return total


def _batch_bytes(layout: Layout, rows: list[tuple[tuple[tuple[int, ...], int], int]]) -> Ints:
    flat = (len(rows), *(1,) * len(layout.mesh))
    held = np.array([itemsize * count for (_, itemsize), count in rows], np.int64).reshape(flat)
    lengths = [
        np.array([shape[d] for (shape, _), _ in rows], np.int64).reshape(flat) for d in range(len(rows[0][0][0]))
    ]
    for axis in cut_order(layout):
        placement = layout.placements[axis]
        split = 0 if layout.nested else placement.split
        lengths[placement.dim] = _cut_lengths(lengths[placement.dim], layout.mesh[axis], axis + 1, split)
    for length in lengths:
        held = held * length
    sides = [1 if p.replicated else side for side, p in zip(layout.mesh, layout.placements, strict=True)]
    total: Ints = np.broadcast_to(held, (len(rows), *sides)).sum(axis=0).reshape(-1)
    return total


def _cut_lengths(length: Ints, parts: int, axis: int, split: int) -> Ints:
    """How long each part along ``axis`` is when ``length`` positions are cut into ``parts``."""
    if not split:
        return _parts(length, parts, axis)
    size = -(-length // split)
    pieces = (np.minimum(length, size * (i + 1)) - np.minimum(length, size * i) for i in range(split))
    cut: Ints = sum((_parts(piece, parts, axis) for piece in pieces), np.zeros(1, np.int64))
    return cut


def _parts(length: Ints, parts: int, axis: int) -> Ints:
    at = np.arange(parts, dtype=np.int64).reshape([parts if i == axis else 1 for i in range(length.ndim)])
    size = -(-length // parts)
    cut: Ints = np.minimum(length, size * (at + 1)) - np.minimum(length, size * at)
    return cut


def level(loads: Ints, nbytes: int) -> Ints:
    """Divide ``nbytes`` among ranks with these ``loads`` so that those who have least get most.

    Example:
        >>> level(np.array([0, 10, 2]), 9).tolist()
        [6, 0, 3]
    """
    order = np.argsort(loads, kind="stable")
    rising = loads[order]
    counts = np.arange(1, len(rising) + 1)
    missing = counts * rising - np.cumsum(rising)  # what it takes to bring all before up to this one
    filled = int(np.searchsorted(missing, nbytes, side="right"))
    left = nbytes - int(missing[filled - 1])
    each, more = divmod(left, filled)
    shares = np.zeros(len(rising), np.int64)
    shares[:filled] = rising[filled - 1] - rising[:filled] + each
    shares[:more] += 1
    result = np.zeros(len(rising), np.int64)
    result[order] = shares
    return result
