"""Background saves in unusual moments: no thread left, the end of the process has begun, wrong options."""

import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import torch

import model_checkpoint as mc
from model_checkpoint.engine.background.save_async import finish_saves, save_async
from model_checkpoint.engine.background.staging_pool import POOL
from model_checkpoint.engine.jobs import inflight
from model_checkpoint.engine.jobs.running_save import Counts, RunningSave, SaveState
from model_checkpoint.errors import OptionInvalid, SaveCancelled, StateChanged

MIB = 1 << 20


def training(width=8):
    model = torch.nn.Linear(width, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(2, width)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.fixture
def no_thread_left(monkeypatch):
    """A system that has no thread left for those whose names begin so."""
    start = threading.Thread.start

    def refuse(names):
        def begin(thread):
            if thread.name.startswith(names):
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", begin)

    yield refuse
    monkeypatch.undo()
    finish_saves()


@pytest.mark.parametrize("options", [{}, {"memory_limit": 6 * MIB}, {"incremental": True}])
def test_a_save_for_which_no_thread_is_left_fails_at_the_call_and_blocks_nobody(tmp_path, no_thread_left, options):
    state = {"w": np.random.default_rng(0).standard_normal(2 * MIB), "x": 1}
    mc.save(tmp_path, state, step=0, incremental=True)
    no_thread_left("mckpt-save")

    with pytest.raises(RuntimeError, match="can't start new thread"):
        save_async(tmp_path, state, step=1, **options)

    assert not any(inflight._ledger.running.values())
    assert [info.step for info in mc.list_checkpoints(tmp_path)] == [0]
    assert list((tmp_path / ".staging").glob("*")) == []
    no_thread_left("nobody")
    assert save_async(tmp_path, state, step=2).result(60).step == 2


@pytest.mark.parametrize("names", ["mckpt-save", "mckpt-copy"])
def test_a_lazy_save_for_which_no_thread_is_left_lets_the_step_go_on(tmp_path, no_thread_left, names):
    model, optimizer = training()
    state = {"model": model, "optimizer": optimizer, "still": np.arange(1000)}
    mc.save(tmp_path, state, step=0, incremental=True)
    no_thread_left(names)

    with pytest.raises(RuntimeError, match="can't start new thread"):
        save_async(tmp_path, state, step=1, lazy=True, incremental=True).result(60)
    optimizer.step()

    assert not any(inflight._ledger.running.values())
    assert list((tmp_path / ".staging").glob("*")) == []


def test_a_job_ends_once_whoever_tells_it_first():
    ends = []
    job = RunningSave("here", "url", Counts(), leave=lambda job, end: ends.append(end))

    job.fail(RuntimeError("first"))
    job.fail(RuntimeError("second"))

    assert ends == [SaveState.FAILED]
    assert str(job.exception()) == "first"


def test_who_waits_carries_the_words_of_others_until_the_end_and_once_more():
    """The verdict may come by such a word, and so may the one that lets other ranks go."""
    job, carried = RunningSave("here", "url", Counts()), []

    def attend():
        carried.append(job.state)
        job.fail(RuntimeError("heard"))

    job.attend = attend

    assert str(job.exception(timeout=5)) == "heard"
    assert carried == [SaveState.STAGING, SaveState.FAILED]
    job.over()
    assert len(carried) == 3


def test_a_change_that_waiting_for_the_copy_told_of_is_not_told_again(tmp_path):
    model, optimizer = training(1500)
    job = save_async(tmp_path, {"model": model, "optimizer": optimizer}, step=1, lazy=True)
    with torch.no_grad():
        model.weight.add_(1)

    with pytest.raises(StateChanged, match="was written to while it was being saved"):
        job.wait_staged(60)
    inflight.raise_unseen()

    assert job.state is SaveState.FAILED
    assert mc.save(tmp_path, {"epoch": 1}, step=2).step == 2


@pytest.mark.parametrize("wrong", ["1GiB", 0, -1, 1.5e9, True, float("nan")])
def test_a_ceiling_that_is_no_number_of_bytes_is_refused(tmp_path, wrong):
    with pytest.raises(OptionInvalid, match="memory_limit must be None or a whole number of bytes above 0, got"):
        save_async(tmp_path, {"a": 1}, step=1, memory_limit=wrong)

    assert save_async(tmp_path, {"a": 1}, step=1, memory_limit=np.int64(64 * MIB)).result(60).step == 1


def test_an_optimizer_that_is_not_in_a_list_is_refused_with_the_cure(tmp_path):
    model, optimizer = training()

    with pytest.raises(TypeError, match=r"expected a list of torch optimizers, got SGD. Write guard=\[optimizer\]"):
        save_async(tmp_path, {"model": model}, step=1, lazy=True, guard=optimizer)


def test_lazy_and_compressed_do_not_go_together(tmp_path):
    model, optimizer = training()

    with pytest.raises(OptionInvalid, match="lazy=True copies chunks out of order, but compression='fast'"):
        save_async(tmp_path, {"m": model, "o": optimizer}, step=1, lazy=True, compression=mc.CompressionLevel.FAST)


def test_the_hooks_of_several_lazy_saves_are_gone_after_one_step(tmp_path):
    model, optimizer = training()
    for step in range(3):
        save_async(tmp_path, {"model": model, "optimizer": optimizer}, step=step, lazy=True)
    finish_saves()
    assert len(optimizer._optimizer_step_pre_hooks) == 3

    optimizer.step()

    assert len(optimizer._optimizer_step_pre_hooks) == 0


def test_a_compressed_save_in_the_background_is_whole(tmp_path):
    state = {"w": np.arange(1 << 20) // 7, "x": 1}

    info = save_async(tmp_path, state, step=1, compression=mc.CompressionLevel.FAST).result(60)

    assert info.size_bytes < state["w"].nbytes / 2
    assert np.array_equal(mc.load(tmp_path, verify="full")["w"], state["w"])


# --- cancel ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"memory_limit": 30 * MIB}, {"compression": mc.CompressionLevel.FAST}])
def test_a_save_cancelled_after_any_number_of_bytes_is_gone_or_whole(tmp_path, options):
    """``cancel()`` tells the truth: True and nothing is there, or False and all of it is."""
    state = {"w": np.random.default_rng(0).standard_normal(4 * MIB), "epoch": 1}
    outcomes = set()
    for after in range(0, 34 * MIB, 5 * MIB):
        reached = threading.Event()

        def listen(event, after=after, reached=reached):
            if event.done >= min(after, event.total):
                reached.set()

        job = save_async(tmp_path, state, step=after, progress=listen, **options)
        assert reached.wait(60)
        cancelled = job.cancel()
        there = after in {info.step for info in mc.list_checkpoints(tmp_path)} if cancelled else None
        if cancelled:
            with pytest.raises(SaveCancelled, match="nothing of it is visible"):
                job.result(60)
        else:
            assert job.result(60).step == after
        assert there in (None, False)
        assert (after in {info.step for info in mc.list_checkpoints(tmp_path)}) is not cancelled
        assert list((tmp_path / ".staging").glob("*")) == []
        outcomes.add(cancelled)

    assert True in outcomes
    finish_saves()
    assert POOL.total == 0


# --- the end of the process ------------------------------------------------------------------------------------------

LATE = """
import atexit, sys, threading, time
import numpy as np
import model_checkpoint as mc
from model_checkpoint.engine.jobs import inflight
root = sys.argv[1]
mc.save_async(root + "/first", {"epoch": 1}, step=1).result()

def late():
    while not inflight.is_ending():
        time.sleep(0.01)
    mc.save_async(root + "/late", {"w": np.ones(4 << 20)}, step=1, progress=lambda event: time.sleep(0.05))
"""


@pytest.mark.parametrize("how", ["threading.Thread(target=late).start()", "atexit.register(late)"])
def test_a_save_begun_when_the_process_is_already_ending_is_finished(tmp_path, how):
    code = textwrap.dedent(LATE) + how
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert np.array_equal(mc.load(tmp_path / "late")["w"], np.ones(4 << 20))


def test_a_handle_shows_only_what_its_owner_may_do(tmp_path):
    job = save_async(tmp_path, {"a": 1}, step=1)
    job.result()

    public = {name for name in dir(job) if not name.startswith("_")}
    asked = {"counts", "done", "exception", "result", "seen", "stall", "state", "where"}
    assert public == asked | {"at_end", "cancel", "wait_protected", "wait_staged"}


def test_what_waits_for_the_saves_at_the_end_of_the_process_is_called_once_and_after_them(monkeypatch, tmp_path, gate):
    called = []

    def then():
        called.append(job.state)

    monkeypatch.setattr(inflight, "_after_saves", [])
    monkeypatch.setattr(inflight, "_watching_exit", True)  # the real end of this process is not asked for more
    monkeypatch.setattr(inflight._ledger, "ending", False)
    monkeypatch.setattr(inflight._ledger, "failed", [])
    job = save_async(tmp_path, {"w": np.arange(9)}, step=1, progress=gate)
    inflight.watch_exit(then)
    inflight.watch_exit(then)

    gate.open_soon()
    inflight._at_exit()

    assert called == [SaveState.DURABLE]
