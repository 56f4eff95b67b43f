"""Notice of a coming end, used in unusual ways: signals twice, notices closed out of order, parts nobody has."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.engine.background.preemption import choose_parts, preemption
from model_checkpoint.engine.writing import bandwidth
from model_checkpoint.errors import CheckpointNotFound, OptionInvalid
from model_checkpoint.storage.locate import open_store
from model_checkpoint.tree import flatten
from model_checkpoint.tree.nodes.walk import leaves

MIB = 1 << 20
STATE = {"model": np.arange(MIB, dtype=np.float32), "optimizer": np.ones(2 * MIB, np.float32), "epoch": 7}


@pytest.fixture
def url(tmp_path):
    bandwidth._rates.clear()
    yield open_store(tmp_path).url
    bandwidth._rates.clear()


def run(script):
    code = (
        "import os, signal\nfrom model_checkpoint.engine.background.preemption import preemption\n"
        + textwrap.dedent(script)
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_the_time_left_counts_from_the_first_of_several_signals():
    with preemption(deadline=50.0) as one:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)
        left = one.seconds_left()

        os.kill(os.getpid(), signal.SIGTERM)

        assert one.seconds_left() <= left < 50.0


def test_the_first_interrupt_is_held_for_the_save_and_the_second_is_not():
    with preemption(deadline=50.0, signals=signal.SIGINT) as one:
        os.kill(os.getpid(), signal.SIGINT)
        assert one.should_save()

        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            os.kill(os.getpid(), signal.SIGINT)

        assert one.received is signal.SIGINT


def test_a_signal_named_twice_or_alone_is_one_signal():
    with preemption(deadline=5.0, signals=[signal.SIGUSR1, signal.SIGUSR1]) as one:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert one.should_save()
    with preemption(deadline=5.0, signals=signal.SIGUSR1) as one:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert one.should_save()

    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_an_interrupt_that_is_asked_for_as_notice_only_sets_the_flag():
    """Else the loop would end by KeyboardInterrupt before it could save."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with preemption(deadline=5.0, signals=[signal.SIGINT]) as one:
            os.kill(os.getpid(), signal.SIGINT)
            assert one.should_save()

        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_notices_closed_in_any_order_leave_the_handler_that_was_there():
    """Else a process whose notices are all closed would outlive every SIGTERM."""
    done = run("""
    first, second, third = (preemption(deadline=5.0) for _ in range(3))
    first.close()
    os.kill(os.getpid(), signal.SIGTERM)
    print(first.should_save(), second.should_save(), third.should_save())
    third.close()
    second.close()
    first.close()
    print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("still here")
    """)

    assert (done.returncode, done.stdout.split()) == (-signal.SIGTERM, ["False", "True", "True", "True"]), done.stderr


def test_a_signal_that_takes_no_handler_is_refused_and_none_is_installed():
    with pytest.raises(OptionInvalid, match=r"no handler can be installed for <Signals.SIGKILL: 9>.*Nothing was"):
        preemption(deadline=5.0, signals=[signal.SIGTERM, signal.SIGKILL])

    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_forked_child_forgets_the_signal_of_its_parent():
    done = run("""
    notice = preemption(deadline=50.0)
    os.kill(os.getpid(), signal.SIGTERM)
    if os.fork() == 0:
        print(notice.should_save(), notice.seconds_left(), flush=True)
        os._exit(0)
    os.wait()
    print(notice.should_save())
    """)

    assert done.stdout.split() == ["False", "50.0", "True"], done.stderr


# --- what fits -------------------------------------------------------------------------------------------------------


def test_linked_files_do_not_make_the_medium_look_fast(url):
    """What was not written says nothing about the speed of writing."""
    frozen = np.random.default_rng(0).standard_normal(MIB)
    mc.save(url, {"frozen": frozen, "w": 0.0}, step=1)
    bandwidth._rates.clear()

    for step in (2, 3):
        mc.save(url, {"frozen": frozen, "w": np.full(3, step)}, step=step, incremental=True)

    assert bandwidth.measured(url) is None


def test_a_part_that_nothing_belongs_to_does_not_take_the_first_place(url, caplog):
    bandwidth.note(url, 100 * MIB, 100 * 100 * 0.7)
    with preemption(deadline=100.0, parts=["modle", "model", "optimizer"]) as one, caplog.at_level(logging.ERROR):
        os.kill(os.getpid(), signal.SIGTERM)

        info = one.save(url, STATE, step=5)

    assert info.left_out == ("optimizer",)
    assert np.array_equal(mc.load(url, step=5, parts=["model"])["model"], STATE["model"])
    assert "'modle' matches nothing in the state" in caplog.text


def test_a_state_that_is_all_in_its_first_part_is_complete_whatever_the_time():
    flat = flatten({"model": np.zeros(MIB), "epoch": 3})

    kept, left_out = choose_parts(flat, ["model"], budget=1.0)

    assert (kept, left_out) == (flat, ())


def test_after_the_deadline_the_first_part_is_still_tried(url):
    with preemption(deadline=0.01, parts=["model"]) as one:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)

        info = one.save(url, STATE, step=1)

    assert info.left_out == ("the rest",)
    with pytest.raises(CheckpointNotFound, match="incomplete"):
        mc.load(url)


def test_steps_of_any_library_are_taken_and_others_refused_before_anything_is_touched(url):
    with preemption(deadline=100.0) as one:
        assert one.save(url, {"epoch": 1}, step=np.int64(4)).step == 4
        with pytest.raises(ValueError, match="step must be a whole number of 0 or more, got '5'"):
            one.save(url, {"epoch": 1}, step="5")


@pytest.mark.parametrize("rest", [{}, {"epoch": 3}, {"seed": np.zeros(64, np.uint8)}])
def test_of_a_part_that_is_left_out_nothing_stays(rest):
    state = {"model": {"w": np.zeros(8, np.uint8)}, "optimizer": {"m": np.zeros(32, np.uint8), "lr": 0.5}, **rest}

    kept, left_out = choose_parts(flatten(state), ["model", "optimizer"], budget=10.0)

    names = {name for name, _ in leaves(kept.tree)}
    assert names == {"model.w", *(name for name in rest if name == "epoch")}
    assert [leaf.name for leaf in kept.leaves] == ["model.w"]
    assert left_out == (("optimizer", "the rest") if "seed" in rest else ("optimizer",))


def test_a_notice_says_which_signal_came():
    with preemption(deadline=100.0) as one:
        assert (one.received, one.should_save(), one.seconds_left()) == (None, False, 100.0)

        os.kill(os.getpid(), signal.SIGTERM)

        assert (one.received, one.should_save()) == (signal.SIGTERM, True)
        assert 0 < one.seconds_left() <= 100.0
