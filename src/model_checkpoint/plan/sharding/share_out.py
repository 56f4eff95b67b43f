"""Share out: who writes which part of what several ranks hold, so that all write about as much.

What only one rank holds it writes. What several hold is laid end to end and cut between them, those with less to write
already getting more. A cut falls between rows, or every megabyte of longer ones, and never through a small box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from model_checkpoint.manifest import Layout
from model_checkpoint.options import MIB
from model_checkpoint.plan.sharding.holders import HeldBox, boxes_at, seat_of
from model_checkpoint.plan.sharding.loads import Ints, group_ranks, held_bytes, level
from model_checkpoint.plan.sharding.regions import ArrayBox, run_boxes

GRAIN = MIB  # what is smaller is never cut


class PlannedArray(NamedTuple):
    """What a plan needs to know of one array."""

    shape: tuple[int, ...]
    itemsize: int
    layout: int  # in the list of layouts


class Share(NamedTuple):
    """A box of an array that one rank writes, and where it has it."""

    array: int
    box: ArrayBox
    local: tuple[int, ...]
    part: int


class _Group(NamedTuple):
    """Ranks that hold the same part of all arrays of one layout."""

    layout: int
    part: int
    ranks: Ints
    nbytes: int


class _ByteShare(NamedTuple):
    """What one rank writes of all that its group holds, as bytes of it laid end to end."""

    start: int
    stop: int


def share_out(arrays: Sequence[PlannedArray], layouts: Sequence[Layout], rank: int) -> list[Share]:
    """What ``rank`` writes.

    Example:
        >>> from model_checkpoint.plan.sharding.holders import replicated
        >>> [share.box for share in share_out([PlannedArray((4 << 20,), 1, 0)], [replicated([0, 1])], 1)]
        [ArrayBox(offsets=(2097152,), sizes=(2097152,))]
    """
    mine = _stretches(planned_groups(arrays, layouts), rank)
    seats = [seat_of(layout, rank) for layout in layouts]
    seen = dict.fromkeys(mine, 0)
    shares: list[Share] = []
    for number, array in enumerate(arrays):
        for held in boxes_at(array.shape, layouts[array.layout], seats[array.layout]):
            key = (array.layout, held.part if layouts[array.layout].regions else 0)
            nbytes = held.box.elements * array.itemsize
            stretch = mine.get(key)
            if stretch is None:
                shares.append(Share(number, held.box, held.local, held.part))
                continue
            shares.extend(_cut_out(number, held, array.itemsize, stretch, seen[key]))
            seen[key] += nbytes
    return shares


def planned_groups(arrays: Sequence[PlannedArray], layouts: Sequence[Layout]) -> list[tuple[_Group, Ints]]:
    """Ranks that hold the same, and how many bytes each of them is to write of that.

    What they write may differ from it by a row or a small array a cut.
    """
    groups = _groups(arrays, layouts)
    world = 1 + max((int(group.ranks.max()) for group in groups), default=0)
    return list(zip(groups, _levelled(groups, world), strict=True))


def _groups(arrays: Sequence[PlannedArray], layouts: Sequence[Layout]) -> list[_Group]:
    """Every group, those of one rank first, then the smaller first: who has no choice has the first claim."""
    by_layout: dict[int, list[tuple[tuple[int, ...], int]]] = {}
    for array in arrays:
        by_layout.setdefault(array.layout, []).append((array.shape, array.itemsize))
    groups: list[_Group] = []
    for number, held in by_layout.items():
        layout = layouts[number]
        if layout.regions:
            groups.extend(_region_groups(number, layout, held))
            continue
        rows = group_ranks(layout)
        groups += [
            _Group(number, part, ranks, int(nbytes))
            for part, (ranks, nbytes) in enumerate(zip(rows, held_bytes(layout, held), strict=True))
        ]
    return sorted(groups, key=lambda group: len(group.ranks))


def _region_groups(number: int, layout: Layout, held: Sequence[tuple[tuple[int, ...], int]]) -> Iterator[_Group]:
    items = sum(itemsize for _, itemsize in held)
    for part, region in enumerate(layout.regions):
        nbytes = ArrayBox(region.offsets, region.sizes).elements * items
        yield _Group(number, part, np.array(region.ranks, np.int64), nbytes)


def _levelled(groups: Sequence[_Group], world: int) -> list[Ints]:
    """The shares of each group, by what its ranks write of those before."""
    loads = np.zeros(world, np.int64)
    shares: list[Ints] = []
    for group in groups:
        one = np.array([group.nbytes]) if len(group.ranks) == 1 else level(loads[group.ranks], group.nbytes)
        loads[group.ranks] += one
        shares.append(one)
    return shares


def _stretches(groups: Sequence[tuple[_Group, Ints]], rank: int) -> dict[tuple[int, int], _ByteShare]:
    """Which bytes of what its groups hold a rank writes, by layout and, in a layout of regions, the rank's own part."""
    mine: dict[tuple[int, int], _ByteShare] = {}
    counts: dict[int, int] = {}
    for group, share in sorted(groups, key=lambda pair: (pair[0].layout, pair[0].part)):
        found = np.flatnonzero(group.ranks == rank)
        if not len(found):
            continue
        part = counts.get(group.layout, 0)
        counts[group.layout] = part + 1
        if len(group.ranks) == 1:
            continue
        ends = np.cumsum(share)
        at = int(found[0])
        mine[group.layout, part] = _ByteShare(
            int(ends[at] - share[at]), int(ends[at]) if at < len(ends) - 1 else 1 << 62
        )
    return mine


def _cut_out(number: int, held: HeldBox, itemsize: int, stretch: _ByteShare, before: int) -> Iterator[Share]:
    """The part of a box that lies in a rank's stretch; ``before`` bytes of the group lie before the box."""
    nbytes = held.box.elements * itemsize
    unit = _unit(held.box, itemsize)
    start, stop = (_rounded(bound - before, unit, nbytes) // itemsize for bound in stretch)
    for inner in run_boxes(held.box.sizes, start, stop):
        offsets, local = (tuple(map(int.__add__, inner.offsets, base)) for base in (held.box.offsets, held.local))
        yield Share(number, ArrayBox(offsets, inner.sizes), local, held.part)


def _unit(box: ArrayBox, itemsize: int) -> int:
    """Bytes between which a box may be cut: all of a small one, a row, or a megabyte of a long row."""
    nbytes = box.elements * itemsize
    if nbytes <= GRAIN:
        return nbytes
    rows = next(side for side in box.sizes if side > 1)
    row = nbytes // rows
    return row if row <= GRAIN else GRAIN // itemsize * itemsize


def _rounded(at: int, unit: int, most: int) -> int:
    return max(0, min(most, (2 * at + unit) // (2 * unit) * unit))
