"""Box source: the bytes of a box of an array that is read in windows."""

from __future__ import annotations

from collections.abc import Sequence

from model_checkpoint.plan.sharding.regions import ArrayBox, byte_runs, run_boxes
from model_checkpoint.state import Source


class BoxPlace:
    """Where the bytes of a box lie in an array of ``shape``, whatever array that is."""

    __slots__ = ("box", "itemsize", "nbytes", "shape", "start")

    def __init__(self, shape: Sequence[int], itemsize: int, box: ArrayBox) -> None:
        self.shape, self.itemsize, self.box = tuple(shape), itemsize, box
        self.nbytes = box.elements * itemsize
        runs = byte_runs(box, self.shape, itemsize, gap=0)
        self.start = runs[0][0] if len(runs) == 1 else None  # where all of it lies, if it lies in one run


class BoxSource:
    """A box of an array in C order, as a source of its own; nothing is copied where the box lies in one run."""

    __slots__ = ("_place", "_source", "nbytes")

    def __init__(self, source: Source, place: BoxPlace) -> None:
        self._source, self._place = source, place
        self.nbytes = place.nbytes

    def window(self, start: int, stop: int) -> memoryview:
        """The bytes ``[start, stop)`` of the box."""
        place = self._place
        if place.start is not None:
            return self._source.window(place.start + start, place.start + stop)
        room = bytearray(stop - start)
        at = 0
        sides = (*place.shape, place.itemsize)
        for part in run_boxes((*place.box.sizes, place.itemsize), start, stop):
            offsets = tuple(map(int.__add__, part.offsets, (*place.box.offsets, 0)))
            for first, last in byte_runs(ArrayBox(offsets, part.sizes), sides, 1, gap=0):
                room[at : at + last - first] = self._source.window(first, last)
                at += last - first
        return memoryview(room)
