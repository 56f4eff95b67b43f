"""Which bytes an index takes, and which of them need not be read."""

from model_checkpoint.plan.boxes import Box, box_of, parts_of
from model_checkpoint.plan.sharding.regions import ArrayBox, byte_runs


def test_a_slice_that_takes_nothing_begins_where_its_array_does():
    assert box_of(slice(3, 1), Box(8, (4,), (16,))) == Box(8, (0,), (16,))


def test_what_takes_nothing_spans_nothing():
    assert Box(8, (0, 4), (16, 4)).span(4) == (8, 8)
    assert Box(8, (2, 4), (-16, 4)).span(4) == (-8, 24)


def test_a_wide_gap_is_left_out_between_two_elements_as_between_many():
    for side in (2, 3):
        spans = [part.box.span(4) for part in parts_of(Box(0, (side,), (400,)), gap=100)]
        assert spans == [(400 * i, 400 * i + 4) for i in range(side)]


def test_a_gap_that_is_wide_enough_parts_two_runs_and_a_smaller_one_is_read_along():
    box = ArrayBox((1, 0), (2, 2))  # runs of 8 bytes, 24 bytes apart

    assert byte_runs(box, (4, 8), 4, gap=24) == [(32, 40), (64, 72)]
    assert byte_runs(box, (4, 8), 4, gap=25) == [(32, 72)]
