"""Replays side by side: whoever may have drawn another's numbers is found out and repeated."""

import random
import threading

import pytest

from model_checkpoint.recompute.common.context import RandomState
from model_checkpoint.recompute.functions.replay_state import ReplayRun, SharedReplayState
from model_checkpoint.recompute.functions.replay_strategy import ExactReplay


def state_of(seed):
    before = random.getstate()
    random.seed(seed)
    taken = RandomState.capture()
    random.setstate(before)
    return taken


class Busy(RandomState):
    """A newcomer's state; just before it is put in force somebody draws a number."""

    def install(self):
        random.random()
        super().install()


def busy(seed):
    plain = state_of(seed)
    return Busy(python=plain.python, numpy=plain.numpy, torch=plain.torch, cuda=plain.cuda)


def test_a_number_drawn_where_nobody_looks_leaves_a_doubt_on_the_run_that_was_moved():
    ground = SharedReplayState()
    first, second, third = ReplayRun(state_of(1)), ReplayRun(state_of(2)), ReplayRun(busy(3))

    with ground.entered(first):
        ground._join(second)  # moves the generators of the first
        ground._join(third)  # a number of the second's was drawn, and is overwritten before anyone looks
        assert (first.tainted, first.doubted) == (False, True)
        assert (second.tainted, second.doubted) == (False, False)  # whose own numbers those were
        ground._leave(third)
        ground._leave(second)


def test_a_run_that_was_never_moved_is_not_doubted():
    ground = SharedReplayState()
    first, second = ReplayRun(state_of(1)), ReplayRun(busy(2))

    with ground.entered(first):
        ground._join(second)
        ground._leave(second)

    assert (first.moved, first.doubted) == (True, False)


@pytest.mark.parametrize(("function", "calls"), [(lambda: 5, [1, 1, 1]), (random.random, [2, 2, 2])])
def test_a_function_that_draws_is_repeated_when_disturbed_and_one_that_does_not_never_is(function, calls):
    """Two strangers come in while it runs."""
    replay, counts, disturb = ExactReplay(), [], threading.Event()
    elsewhere = replay.capture(bool, ())

    def counted():
        counts[-1] += 1
        if disturb.is_set():
            disturb.clear()
            for _ in range(2):
                stranger = threading.Thread(target=lambda: replay.run(bool, elsewhere))
                stranger.start()
                stranger.join()
        return function()

    random.seed(7)
    scene = replay.capture(counted, ())
    original = function()
    for _ in calls:
        counts.append(0)
        disturb.set()
        assert replay.run(counted, scene) == original

    assert counts == calls


def test_a_doubted_run_is_repeated_once_its_function_is_known_to_draw():
    scene = ExactReplay().capture(random.random, ())
    doubted = ReplayRun(scene.random, moved=True, doubted=True)
    assert scene.trusts(doubted)  # as far as anybody knows it draws nothing

    ExactReplay().run(random.random, scene)  # undisturbed

    assert not scene.trusts(doubted)
