"""Writers: which ranks have written something of a box, as far as the plan of a save tells without asking them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from model_checkpoint.manifest import Layout
from model_checkpoint.plan.sharding.holders import boxes_at, coordinate_of
from model_checkpoint.plan.sharding.loads import Ints, group_ranks
from model_checkpoint.plan.sharding.regions import ArrayBox
from model_checkpoint.plan.sharding.share_out import PlannedArray, planned_groups


def writers(
    arrays: Sequence[PlannedArray], layouts: Sequence[Layout], wanted: Mapping[int, Sequence[ArrayBox]]
) -> set[int]:
    """The ranks among which are all that have written something of the ``wanted`` boxes, by the number of the array.

    Example:
        >>> from model_checkpoint.manifest import Placement
        >>> rows = Layout(mesh=(4,), ranks=(0, 1, 2, 3), placements=(Placement(0),))
        >>> sorted(writers([PlannedArray((8, 2), 4, 0)], [rows], {0: [ArrayBox((3, 0), (2, 2))]}))
        [1, 2]
    """
    found: set[int] = set()
    copies = _Copies(arrays, layouts)
    for number, boxes in wanted.items():
        array = arrays[number]
        for part, ranks, held in copies.parts(array):
            if any(box.common(one) is not None for box in boxes for one in held):
                found.update(ranks if len(ranks) == 1 else copies.writing(number, part))
    return found


class _Copies:
    """Who holds which part of arrays, and who of several that hold the same has written it."""

    def __init__(self, arrays: Sequence[PlannedArray], layouts: Sequence[Layout]) -> None:
        self._arrays, self._layouts = arrays, layouts
        self._known: dict[tuple[tuple[int, ...], int], list[tuple[int, list[int], list[ArrayBox]]]] = {}
        self._shares: dict[tuple[int, int], tuple[Ints, Ints]] | None = None
        self._before: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}

    def parts(self, array: PlannedArray) -> Iterable[tuple[int, list[int], list[ArrayBox]]]:
        """Every part of an array: its number, who holds it, and which boxes that is."""
        key = (array.shape, array.layout)
        if key not in self._known:
            self._known[key] = list(self._parts(array))
        return self._known[key]

    def _parts(self, array: PlannedArray) -> Iterable[tuple[int, list[int], list[ArrayBox]]]:
        layout = self._layouts[array.layout]
        if layout.regions:
            for part, region in enumerate(layout.regions):
                yield part, list(region.ranks), [ArrayBox(region.offsets, region.sizes)]
            return
        for part, ranks in enumerate(group_ranks(layout).tolist()):
            yield part, ranks, [held.box for held in boxes_at(array.shape, layout, coordinate_of(layout, ranks[0]))]

    def writing(self, number: int, part: int) -> list[int]:
        """Which of those that hold a part of an array have written of it: what they hold is laid end to end and cut."""
        if self._shares is None:
            self._shares = {(g.layout, g.part): (g.ranks, share) for g, share in planned_groups(*self._all())}
        key = (self._arrays[number].layout, part)
        if key not in self._before:
            self._before[key] = self._laid(*key)
        start, stop = self._before[key][number]
        ranks, share = self._shares[key]
        ends = np.cumsum(share)
        touching = (ends - share < stop) & (ends > start) | (start == stop)
        touching[-1] |= bool(stop > ends[-1])
        return [int(rank) for rank in ranks[touching]]

    def _all(self) -> tuple[Sequence[PlannedArray], Sequence[Layout]]:
        return self._arrays, self._layouts

    def _laid(self, layout: int, part: int) -> dict[int, tuple[int, int]]:
        """Where each array's bytes lie among all that one part of a layout holds."""
        made, at = {}, 0
        for number, array in enumerate(self._arrays):
            if array.layout == layout:
                boxes = list(self.parts(array))[part][2]
                nbytes = sum(box.elements for box in boxes) * array.itemsize
                made[number] = (at, at + nbytes)
                at += nbytes
        return made
