"""A fork waits for what must not be cut in two, and nobody waits for ever."""

import os
import threading

from model_checkpoint import forks

SOON = 30.0


def fork_and_exit(code=0):
    child = os.fork()
    if child == 0:
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_waits_until_another_thread_is_through():
    inside, leave, forked = threading.Event(), threading.Event(), threading.Event()

    def work():
        with forks.kept_whole():
            inside.set()
            assert leave.wait(SOON)
            assert not forked.is_set()

    def fork():
        assert fork_and_exit() == 0
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
        assert fork_and_exit() == 0


def test_a_fork_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(forks, "_MOST_SECONDS", 0.05)
    inside, leave = threading.Event(), threading.Event()

    def work():
        with forks.kept_whole():
            inside.set()
            leave.wait(SOON)

    worker = threading.Thread(target=work)
    worker.start()
    assert inside.wait(SOON)

    assert fork_and_exit() == 0
    leave.set()
    worker.join(SOON)


def test_a_child_waits_for_nobody_of_its_parent():
    inside, leave = threading.Event(), threading.Event()

    def work():
        with forks.kept_whole():
            inside.set()
            leave.wait(SOON)

    with forks.kept_whole():
        child = os.fork()
        if child == 0:
            with forks.kept_whole():
                grandchild = os.fork()
                if grandchild == 0:
                    os._exit(0)
                os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    worker = threading.Thread(target=work)
    worker.start()
    assert inside.wait(SOON)  # forks of before left nothing behind
    leave.set()
    worker.join(SOON)
