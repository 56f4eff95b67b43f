"""The bytes of a box are those of the same slice of the array, whatever window of them is asked for."""

import numpy as np
import pytest

from model_checkpoint.engine.writing.rank_saves.box_source import BoxPlace, BoxSource
from model_checkpoint.plan.sharding.regions import ArrayBox

ARRAY = np.arange(4 * 5 * 3, dtype=np.int16).reshape(4, 5, 3)


class Watched:
    """An array in C order that remembers what was asked of it."""

    def __init__(self, array):
        self.data, self.asked = memoryview(array.tobytes()), []
        self.nbytes = len(self.data)

    def window(self, start, stop):
        self.asked.append((start, stop))
        return self.data[start:stop]


@pytest.mark.parametrize(
    ("offsets", "sizes", "in_one_run"),
    [
        ((1, 0, 0), (2, 5, 3), True),
        ((2, 3, 1), (1, 1, 2), True),
        ((1, 1, 0), (2, 3, 3), False),
        ((0, 2, 1), (4, 2, 1), False),
        ((0, 0, 0), (4, 5, 2), False),
    ],
)
@pytest.mark.parametrize("array", [ARRAY, ARRAY.astype(np.int8)], ids=["int16", "int8"])  # one byte between two runs
def test_every_window_of_a_box_has_the_bytes_of_the_slice(array, offsets, sizes, in_one_run):
    source, box = Watched(array), ArrayBox(offsets, sizes)
    place = BoxPlace(array.shape, array.itemsize, box)
    whole = array[box.slices()].tobytes()
    view = BoxSource(source, place)

    assert (view.nbytes, place.start is not None) == (len(whole), in_one_run)
    for start in range(len(whole) + 1):
        for stop in range(start, len(whole) + 1):
            assert bytes(view.window(start, stop)) == whole[start:stop]


def test_a_box_that_lies_in_one_run_is_asked_for_once_and_not_copied():
    source = Watched(ARRAY)
    box = BoxSource(source, BoxPlace(ARRAY.shape, ARRAY.itemsize, ArrayBox((1, 0, 0), (2, 5, 3))))

    found = box.window(4, 50)

    assert source.asked == [(34, 80)]
    assert found.obj is source.data.obj
