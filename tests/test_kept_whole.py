"""A fork waits for what must not be cut in two, and nobody waits for ever."""

import threading
from contextlib import contextmanager

from model_checkpoint import forks
from tests.ground.crowds import in_child

SOON = 30.0


def nothing():
    pass


@contextmanager
def somebody_inside():
    """Another thread is inside until the block ends."""
    inside, leave = threading.Event(), threading.Event()

    def work():
        with forks.kept_whole():
            inside.set()
            leave.wait(SOON)

    worker = threading.Thread(target=work)
    worker.start()
    assert inside.wait(SOON)
    yield
    leave.set()
    worker.join(SOON)


def test_a_fork_waits_until_another_thread_is_through():
    inside, leave, forked = threading.Event(), threading.Event(), threading.Event()

    def work():
        with forks.kept_whole():
            inside.set()
            assert leave.wait(SOON)
            assert not forked.is_set()

    def fork():
        assert in_child(nothing) == 0
        forked.set()

    worker, forking = threading.Thread(target=work), threading.Thread(target=fork)
    worker.start()
    assert inside.wait(SOON)
    forking.start()
    assert not forked.wait(0.1)
    leave.set()
    worker.join(SOON)

    assert forked.wait(SOON)
    forking.join(SOON)


def test_whoever_is_inside_may_fork_and_go_in_again():
    with forks.kept_whole(), forks.kept_whole():
        assert in_child(nothing) == 0


def test_a_fork_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(forks, "_MOST_SECONDS", 0.05)

    with somebody_inside():
        assert in_child(nothing) == 0


def test_a_child_waits_for_nobody_of_its_parent():
    def child():
        with forks.kept_whole():
            assert in_child(nothing) == 0

    with forks.kept_whole():
        assert in_child(child) == 0
    with somebody_inside():  # forks of before left nothing behind
        pass
