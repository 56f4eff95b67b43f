"""Notice of a coming end: the handler only sets a flag; what is saved in a hurry is never taken for a checkpoint."""

import errno
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.engine.background.preemption import choose_parts, preemption
from model_checkpoint.engine.background.save_async import finish_saves, save_async
from model_checkpoint.engine.writing import bandwidth
from model_checkpoint.errors import BackgroundSaveFailed, CheckpointNotFound, StructureMismatch
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing.faults import Fault, FaultyCalls, Kind
from model_checkpoint.tree import flatten

MIB = 1 << 20
STATE = {
    "model": {"w": np.arange(MIB, dtype=np.float32)},
    "optimizer": {"m": np.ones(2 * MIB, np.float32)},
    "cache": np.zeros(MIB),
    "epoch": 7,
    "best": {"loss": 0.5},
}


@pytest.fixture
def url(tmp_path):
    bandwidth._rates.clear()
    yield str(tmp_path)
    bandwidth._rates.clear()


def notice(**options):
    one = preemption(deadline=100.0, **options)
    os.kill(os.getpid(), signal.SIGTERM)
    return one


def slow_medium(url, megabytes_in_100_seconds):
    """As if earlier saves had been so slow that this much fits the deadline, margin included."""
    bandwidth.note(url, 100 * MIB, 100 * 100 * 0.7 / megabytes_in_100_seconds)


def test_the_handler_only_sets_a_flag():
    with preemption(deadline=5.0) as one:
        assert not one.should_save()
        assert one.seconds_left() == 5.0

        os.kill(os.getpid(), signal.SIGTERM)

        assert one.should_save()
        assert 0 < one.seconds_left() < 5.0
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_earlier_handlers_are_called_and_come_back():
    calls = []
    before = signal.signal(signal.SIGUSR1, lambda *_: calls.append("theirs"))
    try:
        with (
            preemption(deadline=5.0, signals=[signal.SIGUSR1]) as outer,
            preemption(deadline=5.0, signals=[signal.SIGUSR1]) as inner,
        ):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert outer.should_save()
            assert inner.should_save()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert calls == ["theirs", "theirs"]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_deadline_must_be_in_the_future():
    with pytest.raises(ValueError, match="deadline must be more than 0 seconds"):
        preemption(deadline=0)


def test_a_forked_child_dies_of_the_signal_as_before():
    script = """
    import os, signal, time
    from model_checkpoint.engine.background.preemption import preemption
    notice = preemption(deadline=5.0)
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    time.sleep(0.2)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), notice.should_save())
    os.kill(os.getpid(), signal.SIGTERM)
    print(notice.should_save())
    """

    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)

    assert done.stdout.split() == ["-15", "False", "True"], done.stderr


def test_a_handler_in_another_thread_is_refused():
    script = """
    import threading
    from model_checkpoint.engine.background.preemption import preemption
    def work():
        try:
            preemption(deadline=5.0)
        except ValueError as error:
            print(error)
    thread = threading.Thread(target=work); thread.start(); thread.join()
    """

    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)

    assert "only be installed in the main thread" in done.stdout


def test_with_time_enough_the_whole_state_is_saved(url):
    with notice(parts=["model"]) as one:
        info = one.save(url, STATE, step=3)

    assert (info.prefix, info.left_out) == ("step-00000003", ())
    assert mc.load(url)["epoch"] == 7


def test_a_measured_bandwidth_decides_what_fits(url):
    info = mc.save(url, STATE, step=1)
    rate = bandwidth.measured(url)

    assert rate is not None
    assert info.size_bytes / rate < 60


def test_without_a_measurement_the_medium_is_probed_and_nothing_stays(url):
    with notice(parts=["model"]) as one:
        one.save(url, STATE, step=3)

    assert [p for p in os.listdir(os.path.join(url, ".staging"))] == []
    assert [info.step for info in mc.list_checkpoints(url)] == [3]


def test_parts_are_saved_by_priority_and_the_result_is_never_chosen_by_default(url):
    mc.save(url, {"epoch": 1}, step=1, metrics={"loss": 0.9})
    slow_medium(url, 5)

    with notice(parts=["model", "optimizer"]) as one:
        info = one.save(url, STATE, step=3, metrics={"loss": 0.1})

    assert (info.prefix, info.left_out) == ("emergency-00000003", ("optimizer", "the rest"))
    assert mc.load(url) == {"epoch": 1}
    assert mc.load(url, best="loss") == {"epoch": 1}
    assert mc.load(url, fallback=True) == {"epoch": 1}
    assert [(i.step, i.left_out) for i in mc.list_checkpoints(url)] == [(3, ("optimizer", "the rest")), (1, ())]
    for choice in ({"step": 3}, {"name": info.prefix}, {"id": info.id}):
        loaded = mc.load(url, **choice)
        assert sorted(loaded) == ["best", "epoch", "model"]
        assert np.array_equal(loaded["model"]["w"], STATE["model"]["w"])
    assert [h.ok for h in mc.verify(url)] == [True, True]


def test_an_incomplete_checkpoint_is_loaded_into_live_objects_only_by_its_parts(url):
    slow_medium(url, 5)
    with notice(parts=["model", "optimizer"]) as one:
        one.save(url, STATE, step=3)
    live = {"model": {"w": np.zeros(MIB, np.float32)}, "optimizer": {"m": np.zeros(2 * MIB, np.float32)}}

    with pytest.raises(StructureMismatch, match=r"optimizer\.m"):
        mc.load(url, step=3, into=live)
    mc.load(url, step=3, into=live, parts=["model"])

    assert np.array_equal(live["model"]["w"], STATE["model"]["w"])


def test_only_incomplete_checkpoints_are_as_good_as_none(url):
    slow_medium(url, 5)
    with notice(parts=["model"]) as one:
        one.save(url, STATE, step=3)

    with pytest.raises(CheckpointNotFound, match="only incomplete emergency checkpoints: emergency-00000003"):
        mc.load(url)


def test_a_complete_save_of_the_same_step_comes_first(url):
    slow_medium(url, 5)
    with notice(parts=["model"]) as one:
        one.save(url, STATE, step=3)
        one.save(url, STATE, step=3)
    mc.save(url, STATE, step=3)

    assert mc.load(url, step=3)["cache"].shape == (MIB,)
    assert mc.load(url)["cache"].shape == (MIB,)


def test_the_first_part_is_saved_even_if_the_time_is_too_short_for_it(url):
    slow_medium(url, 1)

    with notice(parts=["optimizer", "model"]) as one:
        info = one.save(url, STATE, step=3)

    assert info.left_out == ("model", "the rest")


def test_without_declared_parts_everything_is_tried(url):
    slow_medium(url, 1)

    with notice() as one:
        assert one.save(url, STATE, step=3).left_out == ()


def test_parts_are_chosen_in_order_until_one_does_not_fit():
    flat = flatten(STATE)

    for budget, left_out in [(100, ()), (19, ("the rest",)), (12, ("the rest",)), (9, ("optimizer", "the rest"))]:
        kept, dropped = choose_parts(flat, ["model", "optimizer"], budget * MIB)

        assert dropped == left_out
        assert sum(leaf.nbytes for leaf in kept.leaves) <= budget * MIB


def test_a_step_that_is_already_saved_is_not_saved_again(url):
    saved = mc.save(url, STATE, step=3)

    with notice() as one:
        assert one.save(url, STATE, step=3).id == saved.id


def test_a_save_in_flight_is_finished_first_and_its_failure_does_not_stop_the_emergency(url):
    def fail(event):
        raise KeyError("listener")

    save_async(url, STATE, step=2, progress=fail)

    with notice() as one:
        assert one.save(url, STATE, step=3).step == 3
    with pytest.raises(BackgroundSaveFailed, match=r"step-00000002: .*listener"):
        finish_saves()


def test_the_last_chance_is_taken_whatever_failed_before_and_the_failures_are_told_afterwards(url, caplog):
    """Two failed background saves must not cost the checkpoint of the end."""
    for step in (1, 2):
        store = LocalStore(url, calls=FaultyCalls(Fault(kind=Kind.FAIL, at=12, code=errno.EIO, lasting=True)))
        save_async(store, STATE, step=step, busy="queue")

    with notice() as one:
        info = one.save(url, STATE, step=3)

    assert (info.step, mc.load(url)["epoch"]) == (3, 7)
    told = [record.message for record in caplog.records if "an earlier background save failed" in record.message]
    assert [next(step for step in (1, 2) if f"step-0000000{step}" in text) for text in told] == [1, 2]
    for step in (1, 2):
        with pytest.raises(BackgroundSaveFailed, match=f"step-0000000{step}"):
            finish_saves(url)
    finish_saves(url)
