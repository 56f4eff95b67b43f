"""Workers are for many items: one is worked on where it is asked for."""

import threading

import pytest

from model_checkpoint.engine.common.workers import Pace, run_all


@pytest.mark.parametrize(("count", "most", "own"), [(0, 4, True), (1, 4, True), (2, 4, False), (2, 1, True)])
def test_one_item_or_one_worker_needs_no_thread_of_its_own(count, most, own):
    places = []

    def worker(items):
        for _ in [*items, None]:
            places.append(threading.current_thread() is threading.main_thread())

    run_all(worker, range(count), pace=Pace(most=most))

    assert set(places) == {own}
