"""How threads that are ranks wait for each other, and how long somebody naps who has to ask."""

import threading
import time

import pytest
from tests.ground.crowds import in_child

from model_checkpoint.distributed import LocalCoordinator
from model_checkpoint.distributed.coordinators.bounded import BoundedCalls, pause

PAST = 0.0  # a moment that is over


def test_one_process_is_the_only_rank_and_hears_itself():
    (alone,) = LocalCoordinator.group(1, patience=3.0)
    assert (alone.rank, alone.world_size, alone.patience) == (0, 1, 3.0)

    alone = LocalCoordinator(patience=4.0)
    assert (alone.rank, alone.world_size, alone.patience) == (0, 1, 4.0)
    alone.put("save-1/vote/0", b"a word")
    assert alone.collect(["save-1/vote/0", "save-1/never/0"], PAST) == {"save-1/vote/0": b"a word"}
    assert LocalCoordinator().collect(["save-1/vote/0"], PAST) == {}


def test_a_thread_hears_at_once_what_another_says_while_it_waits():
    first, second = LocalCoordinator.group(2)
    first.put("save-1/vote/0", b"before")
    later = threading.Timer(0.05, lambda: second.put("save-1/vote/1", b"meanwhile"))
    later.start()
    until = time.monotonic() + 0.9  # less than a second is waited for, too

    heard = first.collect(["save-1/vote/0", "save-1/vote/1"], until)

    assert heard == {"save-1/vote/0": b"before", "save-1/vote/1": b"meanwhile"}
    later.join()


def test_what_is_never_said_is_waited_for_to_the_end():
    until = time.monotonic() + 0.05

    assert LocalCoordinator().collect(["save-1/never/0"], until) == {}
    assert time.monotonic() >= until


@pytest.mark.parametrize(
    ("nap", "world", "longer"),
    [(0.001, 1, 0.00102), (0.001, 4, 0.00102), (0.001, 10, 0.00105), (0.001, 40, 0.0012), (0.001, 9000, 0.0015)],
)
def test_the_more_ranks_ask_the_faster_each_naps_longer(nap, world, longer):
    assert pause(nap, PAST, world) == pytest.approx(longer)
    assert pause(0.049, PAST, world) <= 0.05
    assert pause(1.0, PAST, world) == 0.05


def test_a_nap_lasts_as_long_as_it_shall_but_not_beyond_the_end():
    began = time.monotonic()
    pause(0.02, began + 60)
    assert time.monotonic() - began >= 0.02

    until = time.monotonic() + 0.02
    pause(3600.0, until)
    assert time.monotonic() >= until


def test_a_forked_child_has_a_thread_of_its_own_for_its_calls():
    calls = BoundedCalls("example")
    assert calls.run(lambda: 1, seconds=30) == 1

    def work():
        assert calls.run(lambda: 2, seconds=5) == 2

    assert in_child(work) == 0
