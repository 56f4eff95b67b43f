"""Box source: the bytes of a box of an array that is read in windows."""

from __future__ import annotations

from collections.abc import Sequence

from model_checkpoint.plan.sharding.regions import ArrayBox, byte_runs, run_boxes
from model_checkpoint.state import Source


class BoxSource:
    """A box of an array in C order, as a source of its own; nothing is copied where the box lies in one run."""

    def __init__(self, source: Source, shape: Sequence[int], itemsize: int, box: ArrayBox) -> None:
        self._source, self._shape, self._itemsize, self._box = source, tuple(shape), itemsize, box
        self.nbytes = box.elements * itemsize
        runs = byte_runs(box, self._shape, itemsize, gap=0)
        self._start = runs[0][0] if len(runs) == 1 else None

    def window(self, start: int, stop: int) -> memoryview:
        """The bytes ``[start, stop)`` of the box."""
        if self._start is not None:
            return self._source.window(self._start + start, self._start + stop)
        room = bytearray(stop - start)
        at = 0
        sides = (*self._shape, self._itemsize)
        for part in run_boxes((*self._box.sizes, self._itemsize), start, stop):
            offsets = tuple(map(int.__add__, part.offsets, (*self._box.offsets, 0)))
            for first, last in byte_runs(ArrayBox(offsets, part.sizes), sides, 1, gap=0):
                room[at : at + last - first] = self._source.window(first, last)
                at += last - first
        return memoryview(room)
