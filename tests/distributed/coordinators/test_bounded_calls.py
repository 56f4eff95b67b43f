"""A call that may hang is left behind; what it returns or raises in time comes back."""

import threading

import pytest

from model_checkpoint.distributed.coordinators.bounded import BoundedCalls, NoAnswer


def fail():
    raise ValueError("told")


def test_what_a_call_returns_or_raises_comes_back():
    calls = BoundedCalls("test")

    assert calls.run(lambda: 3, seconds=30) == 3
    with pytest.raises(ValueError, match="told"):
        calls.run(fail, seconds=30)
    assert calls.run(lambda: 4, seconds=30) == 4


def test_a_call_that_hangs_is_left_behind_and_the_next_has_a_thread_of_its_own():
    calls, over = BoundedCalls("test"), threading.Event()

    with pytest.raises(NoAnswer, match=r"^test: no answer within 0\.0 s"):
        calls.run(lambda: over.wait(30), seconds=0.01)

    assert calls.run(lambda: over.is_set(), seconds=30) is False
    over.set()


def test_a_call_that_takes_long_can_see_that_others_wait_for_it_or_the_end_of_the_program():
    calls, begun = BoundedCalls("test"), threading.Event()
    assert not calls.wanted

    def until_wanted():
        begun.set()
        while not calls.wanted:
            over.wait(0.001)

    over = threading.Event()
    first = threading.Thread(target=lambda: calls.run(until_wanted, seconds=30))
    first.start()
    begun.wait()
    assert calls.run(lambda: 4, seconds=20) == 4
    first.join()

    calls.end(0.0)
    assert calls.wanted
