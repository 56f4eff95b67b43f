"""Workers are for many items: one is worked on where it is asked for."""

import threading

import pytest

from model_checkpoint.engine.common.workers import Pace, run_all


@pytest.mark.parametrize(("count", "own"), [(0, True), (1, True), (2, False)])
def test_one_item_needs_no_thread_of_its_own(count, own):
    places = []

    def worker(items):
        for _ in [*items, None]:
            places.append(threading.current_thread() is threading.main_thread())

    run_all(worker, range(count), pace=Pace(most=4))

    assert set(places) == {own}
