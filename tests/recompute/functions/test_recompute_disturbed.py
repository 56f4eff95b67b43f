"""Replays side by side: whoever may have drawn another's numbers is found out and repeated."""

import random
import threading

import pytest

from model_checkpoint.recompute.common.context import RandomState
from model_checkpoint.recompute.functions.replay_state import ReplayRun, SharedReplayState
from model_checkpoint.recompute.functions.replay_strategy import ExactReplay

_PATIENCE = 60  # seconds until a test that hangs fails


def state_of(seed):
    before = random.getstate()
    random.seed(seed)
    taken = RandomState.capture()
    random.setstate(before)
    return taken


class Moment:
    """A function that draws one number at a chosen moment, and counts its calls."""

    def __init__(self, may_draw):
        self.came, self.drew, self.may_draw, self.calls = threading.Event(), threading.Event(), may_draw, 0

    def __call__(self):
        self.calls += 1
        self.came.set()
        assert self.may_draw.wait(_PATIENCE)
        number = random.random()
        self.drew.set()
        return number


def registered(replay, function, seed):
    """The scene of a function, and the number it drew when it was first called."""
    random.seed(seed)
    scene = replay.capture(function, ())
    return scene, random.random()


def started(action):
    result = []
    thread = threading.Thread(target=lambda: result.append(action()), daemon=True)
    thread.start()
    return thread, result


def test_numbers_drawn_in_the_very_moment_another_comes_in_are_their_functions_own(monkeypatch):
    """Both draw while the third's generators would be put in force: between a look at the old ones and the new."""
    replay, opened = ExactReplay(), threading.Event()
    first = Moment(opened)
    second = Moment(first.drew)
    (first_scene, one), (second_scene, two) = registered(replay, first, 1), registered(replay, second, 2)
    put = random.setstate

    def put_in_force(state):
        if second.came.is_set() and not opened.is_set():
            opened.set()
            assert second.drew.wait(_PATIENCE)
        put(state)

    def third():
        opened.set()
        return second.drew.wait(_PATIENCE)

    scene = replay.capture(third, ())
    monkeypatch.setattr(random, "setstate", put_in_force)
    thread, found = started(lambda: replay.run(first, first_scene))
    assert first.came.wait(_PATIENCE)
    other, also_found = started(lambda: replay.run(second, second_scene))
    assert second.came.wait(_PATIENCE)
    assert replay.run(third, scene)
    for running in (thread, other):
        running.join(_PATIENCE)

    assert (found, also_found) == ([one], [two])


@pytest.mark.parametrize(("stays", "calls"), [(False, 1), (True, 2)])
def test_a_guest_that_drew_nothing_disturbs_only_as_long_as_it_is_there(stays, calls):
    """A function that draws finds its numbers after a guest has left, and is repeated where one may have drawn."""
    replay, drawn, guests = ExactReplay(), threading.Event(), []
    guest_came, guest_may_go = threading.Event(), threading.Event()
    counts = [0]

    def guest():
        guest_came.set()
        return guest_may_go.wait(_PATIENCE)

    def drawing():
        counts[0] += 1
        if not guests:
            guests.append(started(lambda: replay.run(guest, elsewhere))[0])
            assert guest_came.wait(_PATIENCE)
            if not stays:
                guest_may_go.set()
                guests[0].join(_PATIENCE)
        number = random.random()
        drawn.set()
        return number

    elsewhere = replay.capture(guest, ())
    scene, original = registered(replay, drawing, 7)
    thread, found = started(lambda: replay.run(drawing, scene))
    assert drawn.wait(_PATIENCE)
    guest_may_go.set()
    thread.join(_PATIENCE)

    assert (found, counts) == ([original], [calls])


def test_functions_that_draw_nothing_run_side_by_side_and_once():
    replay, counts = ExactReplay(), [0]
    together = threading.Barrier(3, timeout=_PATIENCE)

    def quiet():
        counts[0] += 1
        together.wait()
        return 5

    runs = [started(lambda: replay.run(quiet, replay.capture(quiet, ()))) for _ in range(3)]
    for thread, _ in runs:
        thread.join(_PATIENCE)

    assert [found for _, found in runs] == [[5]] * 3
    assert counts == [3]


def test_a_guest_keeps_its_own_state_and_finds_it_when_it_comes_back_alone():
    ground = SharedReplayState()
    first, second = ReplayRun(state_of(1)), ReplayRun(state_of(2))

    with ground.entered(first):
        ground._join(second)
        assert (first.guest, second.guest) == (False, True)
        ground._leave(second)
    ground._join(second)
    number = random.random()
    ground._leave(second)

    assert not second.guest
    assert not second.tainted
    assert number == random.Random(2).random()
