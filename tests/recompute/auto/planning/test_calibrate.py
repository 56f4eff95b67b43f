"""Calibration: what is predicted of a whole step stands on the measured plain one."""

import random

import pytest
from test_planner import random_chain

from model_checkpoint.recompute.auto.planning.calibrate import Calibration
from model_checkpoint.recompute.auto.planning.forecast import Forecaster, Lanes
from model_checkpoint.recompute.auto.planning.schedule import Keep, keep_all


def test_what_is_chosen_is_as_fast_as_the_budget_allows():
    """The leanest plan would fit every budget."""
    chain = random_chain(random.Random(0), 8)
    book, last = Forecaster(chain), len(chain.stages) - 1
    plain, tried = book.take(keep_all(last + 1)), []

    def measure(schedule):
        tried.append(book.take((*schedule, Keep(stage=last))))
        return tried[-1].peak

    calibration = Calibration(
        chain, base=0, plain_peak=plain.peak, plain_seconds=plain.seconds, measure=measure, lanes=None
    )
    floor = calibration.floor()
    leanest, budget = len(tried), (floor + plain.peak) // 2

    chosen = calibration.choose(budget)

    assert len(tried) > leanest
    assert chosen.seconds < min(takes.seconds for takes in tried[:leanest])
    assert chosen.seconds == pytest.approx(min(takes.seconds for takes in tried if takes.peak <= budget))


@pytest.mark.parametrize("lanes", [None, Lanes(overlap=0.7, prefetch=True)])
def test_what_a_plain_step_takes_beyond_the_stages_is_in_every_prediction(lanes):
    """A costly head or loss is no stage, but no plan is rid of it."""
    chain = random_chain(random.Random(0), 8)
    book, last = Forecaster(chain, lanes), len(chain.stages) - 1
    plain = book.take(keep_all(last + 1))
    calibration = Calibration(
        chain,
        base=0,
        plain_peak=plain.peak,
        plain_seconds=plain.seconds + 1000,
        measure=lambda schedule: book.take((*schedule, Keep(stage=last))).peak,
        lanes=lanes,
    )

    floor = calibration.floor()
    for budget in range(floor, plain.peak + 1, 5):
        chosen = calibration.choose(budget)
        takes = book.take((*chosen.schedule, Keep(stage=last)))

        assert chosen.peak <= budget
        assert chosen.seconds == pytest.approx(takes.seconds + 1000)
    assert calibration.choose(plain.peak).seconds == plain.seconds + 1000
