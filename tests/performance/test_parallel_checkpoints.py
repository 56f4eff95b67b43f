"""Work on many items keeps their order, keeps failures apart, and stops when nobody wants more."""

import itertools
import threading
import time

import pytest

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.performance import ParallelCheckpointProcessor


def test_outcomes_come_in_the_order_of_the_items_with_each_failure_in_its_place():
    def work(n):
        time.sleep(0.001 * (n % 3))
        return 12 // n

    outcomes = ParallelCheckpointProcessor(4).process([3, 0, 4, 6], work)

    assert [outcome.value for outcome in outcomes] == [4, None, 3, 2]
    assert [outcome.ok for outcome in outcomes] == [True, False, True, True]
    assert isinstance(outcomes[1].error, ZeroDivisionError)
    assert all(outcome.seconds > 0 for outcome in outcomes)


def test_as_many_work_at_once_as_there_are_workers():
    together = threading.Barrier(3, timeout=10)

    outcomes = ParallelCheckpointProcessor(3).process(range(3), lambda _: together.wait())

    assert all(outcome.ok for outcome in outcomes)


def test_items_are_taken_only_as_they_are_done():
    taken = itertools.count()
    stream = ParallelCheckpointProcessor(2).stream((next(taken) for _ in itertools.count()), lambda n: n)

    assert [outcome.value for outcome in itertools.islice(stream, 5)] == list(range(5))
    stream.close()

    assert next(taken) <= 12


def test_a_cancel_ends_the_call_with_what_was_done():
    cancel = threading.Event()

    def work(n):
        if n == 3:
            cancel.set()
        return n

    outcomes = ParallelCheckpointProcessor(1).process(range(100), work, cancel=cancel)

    assert 4 <= len(outcomes) <= 6
    assert [outcome.value for outcome in outcomes] == list(range(len(outcomes)))


def test_progress_counts_to_the_end():
    seen = []

    ParallelCheckpointProcessor(2).process("abc", str.upper, progress=seen.append)

    assert seen == [1, 2, 3]


def test_fewer_than_one_worker_is_refused():
    with pytest.raises(OptionInvalid, match="max_workers is 0, expected 1 or more"):
        ParallelCheckpointProcessor(0)
