"""Holders: which boxes of an array each rank of a layout holds, told without asking the other ranks.

The cuts of a mesh are followed one after the other on the runs of positions each dimension still has; the product of
the runs of all dimensions is what a rank holds. A plain cut leaves one run, a strided one may leave several. Cuts are
made as ``torch.chunk`` makes them: every part has the same size, the last ones what is left, or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from model_checkpoint.manifest import HeldRegion, Layout, Placement
from model_checkpoint.plan.sharding.regions import ArrayBox

Runs = list[tuple[int, int]]


class HeldBox(NamedTuple):
    """A box of an array that a rank holds, and where it has it."""

    box: ArrayBox
    local: tuple[int, ...]  # where it begins in the rank's own array
    part: int = 0  # which of the rank's own arrays


def replicated(ranks: Sequence[int]) -> Layout:
    """The layout of an array that each of ``ranks`` holds whole."""
    return Layout(mesh=(len(ranks),), ranks=tuple(ranks), placements=(Placement(),))


def renamed_ranks(layout: Layout, names: Mapping[int, int]) -> Layout:
    """The same layout, where each rank has the name that ``names`` gives it."""
    if all(rank == name for rank, name in names.items()):
        return layout
    ranks = tuple(names[rank] for rank in layout.ranks)
    regions = tuple(HeldRegion(r.offsets, r.sizes, tuple(names[rank] for rank in r.ranks)) for r in layout.regions)
    return Layout(layout.mesh, ranks, layout.placements, layout.nested, regions, layout.names)


def held_boxes(shape: Sequence[int], layout: Layout, rank: int) -> list[HeldBox]:
    """What ``rank`` holds of an array; nothing if its part is empty or it is not of the layout.

    Example:
        >>> rows = Layout(mesh=(2,), ranks=(0, 1), placements=(Placement(0),))
        >>> held_boxes((3, 4), rows, 1)
        [HeldBox(box=ArrayBox(offsets=(2, 0), sizes=(1, 4)), local=(0, 0), part=0)]
    """
    return boxes_at(shape, layout, seat_of(layout, rank))


def seat_of(layout: Layout, rank: int) -> tuple[int, ...] | None:
    """Where in a layout a rank is: its coordinate in the mesh, or the numbers of its regions; None if it has none."""
    if layout.regions:
        return tuple(number for number, region in enumerate(layout.regions) if rank in region.ranks) or None
    return coordinate_of(layout, rank) if rank in layout.ranks else None


def boxes_at(shape: Sequence[int], layout: Layout, seat: tuple[int, ...] | None) -> list[HeldBox]:
    """What lies at one seat; see :func:`seat_of`, which takes longer than this where there are many ranks."""
    if seat is None:
        return []
    if layout.regions:
        mine = [layout.regions[number] for number in seat]
        return [HeldBox(ArrayBox(r.offsets, r.sizes), (0,) * len(shape), part) for part, r in enumerate(mine)]
    return [HeldBox(box, local) for box, local in _boxes(held_runs(shape, layout, seat))]


def held_runs(shape: Sequence[int], layout: Layout, coordinate: Sequence[int]) -> list[Runs]:
    """The runs of positions that a coordinate of the mesh keeps of each dimension."""
    runs: list[Runs] = [[(0, side)] if side else [] for side in shape]
    for axis in cut_order(layout):
        placement = layout.placements[axis]
        split = 0 if layout.nested else placement.split
        runs[placement.dim] = _cut(runs[placement.dim], layout.mesh[axis], coordinate[axis], split)
    return runs


def cut_order(layout: Layout) -> list[int]:
    """The dimensions of the mesh that cut, in the order in which they do."""
    cutting = [axis for axis, placement in enumerate(layout.placements) if not placement.replicated]
    if not layout.nested:
        return cutting
    plain = [axis for axis in cutting if not layout.placements[axis].split]
    return plain + [axis for axis in reversed(cutting) if layout.placements[axis].split]


def chunk_bounds(length: int, parts: int, at: int) -> tuple[int, int]:
    """Where ``torch.chunk`` cuts."""
    size = -(-length // parts)
    return min(length, size * at), min(length, size * (at + 1))


def _cut(runs: Runs, parts: int, at: int, split: int) -> Runs:
    length = sum(stop - start for start, stop in runs)
    if not split:
        return _taken(runs, *chunk_bounds(length, parts, at))
    kept: Runs = []
    for piece in range(split):
        start, stop = chunk_bounds(length, split, piece)
        lower, upper = chunk_bounds(stop - start, parts, at)
        for run in _taken(runs, start + lower, start + upper):
            if kept and kept[-1][1] == run[0]:
                kept[-1] = (kept[-1][0], run[1])
            else:
                kept.append(run)
    return kept


def _taken(runs: Runs, start: int, stop: int) -> Runs:
    """Positions ``[start, stop)`` of the runs laid end to end."""
    kept: Runs = []
    before = 0
    for first, last in runs:
        lower, upper = max(start - before, 0), min(stop - before, last - first)
        if lower < upper:
            kept.append((first + lower, first + upper))
        before += last - first
    return kept


def _boxes(runs: Sequence[Runs]) -> list[tuple[ArrayBox, tuple[int, ...]]]:
    """Every combination of runs as a box, with its place in the array that has only the runs."""
    placed: list[list[tuple[int, int, int]]] = []
    for line in runs:
        at = 0
        row: list[tuple[int, int, int]] = []
        for start, stop in line:
            row.append((start, stop - start, at))
            at += stop - start
        placed.append(row)
    return [
        (ArrayBox(tuple(s for s, _, _ in combo), tuple(n for _, n, _ in combo)), tuple(at for _, _, at in combo))
        for combo in product(*placed)
    ]


def local_shape(shape: Sequence[int], layout: Layout, rank: int) -> tuple[int, ...]:
    """The shape of what ``rank`` of a mesh holds, as one array."""
    runs = held_runs(shape, layout, coordinate_of(layout, rank))
    return tuple(sum(stop - start for start, stop in line) for line in runs)


def coordinate_of(layout: Layout, rank: int) -> tuple[int, ...]:
    """Where in the mesh a rank is."""
    return unravel(layout.ranks.index(rank), layout.mesh)


def unravel(position: int, mesh: Sequence[int]) -> tuple[int, ...]:
    """The coordinate of a position in C order.

    Example:
        >>> unravel(5, (2, 3))
        (1, 2)
    """
    coordinate = []
    for side in reversed(mesh):
        position, at = divmod(position, side)
        coordinate.append(at)
    return tuple(reversed(coordinate))


def holders(layout: Layout, rank: int) -> tuple[int, ...]:
    """The ranks of a mesh that hold just what ``rank`` holds, itself included."""
    mine = coordinate_of(layout, rank)
    axes = [
        range(side) if placement.replicated else (at,)
        for side, at, placement in zip(layout.mesh, mine, layout.placements, strict=True)
    ]
    steps = [prod(layout.mesh[axis + 1 :]) for axis in range(len(layout.mesh))]
    return tuple(
        layout.ranks[sum(at * step for at, step in zip(coordinate, steps, strict=True))]
        for coordinate in product(*axes)
    )
