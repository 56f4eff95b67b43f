"""Overlap: what a second thread gets done, read from rounds as they were recorded on two cores."""

import itertools

import pytest

from model_checkpoint.recompute.auto.common.overlap import measure_overlap, typical_overlap

# milliseconds of one burst and of two at once
SPARE = [(4.0, 4.2), (4.1, 4.3), (4.0, 9.3), (4.0, 4.1), (4.2, 5.0), (4.0, 4.4), (5.1, 4.4)]
BUSY = [(4.1, 8.0), (6.9, 4.3), (4.0, 8.4), (4.0, 7.9), (4.0, 8.1), (7.6, 7.7), (4.1, 8.2)]


def test_a_round_that_a_neighbour_disturbed_does_not_hide_a_spare_core():
    assert typical_overlap(SPARE) == pytest.approx(0.9, abs=0.06)


def test_a_lucky_round_on_a_busy_machine_promises_no_spare_core():
    assert max(2 - both / alone for alone, both in BUSY) > 0.9
    assert typical_overlap(BUSY) < 0.1


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_less_than_half_of_the_rounds_decide_nothing(count):
    calm, wild = [(1.0, 1.25)] * (7 - count), [(1.0, 3.0), (1.0, 0.2), (1.0, 2.0)]
    for others in itertools.combinations(wild, count):
        assert typical_overlap([*others, *calm]) == pytest.approx(0.75)


def test_the_share_is_never_below_nothing_nor_above_all():
    assert typical_overlap([(1.0, 2.5)]) == 0.0
    assert typical_overlap([(1.0, 0.5)]) == 1.0
    assert 0.0 <= measure_overlap() <= 1.0
