"""Background saves and the life of a process: its end, its forks, its memory. Each test runs a real child process."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import model_checkpoint as mc

PRELUDE = """
import errno, os, sys, threading, time
import numpy as np
import model_checkpoint as mc
from model_checkpoint.engine.background.save_async import save_async, finish_saves
from model_checkpoint.engine.background.staging_pool import POOL
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing.faults import Fault, FaultyCalls, Kind

root = sys.argv[1]
state = {"w": np.arange(1 << 19, dtype=np.float64), "epoch": 3}

def slow(event):
    time.sleep(0.3)

def broken(at=12):
    return LocalStore(root, calls=FaultyCalls(Fault(kind=Kind.FAIL, at=at, code=errno.EIO, lasting=True)))
"""


def run(tmp_path, script, *, timeout=60):
    code = PRELUDE + textwrap.dedent(script)
    return subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=timeout, check=False
    )


def test_a_save_under_way_at_exit_is_finished(tmp_path):
    done = run(tmp_path, "save_async(root, state, step=1, progress=slow)")

    assert (done.returncode, done.stderr) == (0, "")
    assert mc.load(tmp_path)["epoch"] == 3


@pytest.mark.slow
def test_queued_saves_at_exit_are_all_finished(tmp_path):
    done = run(tmp_path, "for i in range(3): save_async(root, state, step=i, progress=slow, busy='queue')")

    assert done.returncode == 0
    assert [info.step for info in mc.list_checkpoints(tmp_path)] == [2, 1, 0]


def test_a_failure_nobody_asked_for_ends_the_process_with_an_error(tmp_path):
    script = """
    import atexit, tempfile
    from concurrent.futures import ThreadPoolExecutor
    atexit.register(lambda: print("exit functions ran"))
    ThreadPoolExecutor(1).submit(int)
    threading.Thread(target=lambda: (time.sleep(0.5), print("threads ended"))).start()
    print("training is over")
    save_async(broken(), state, step=1)
    """

    done = run(tmp_path, script)

    assert done.returncode == 1
    assert done.stdout.splitlines() == ["training is over", "threads ended", "exit functions ran"]
    assert "StorageFailure" in done.stderr
    assert "Input/output error" in done.stderr


def test_a_failure_that_was_seen_does_not_end_the_process_with_an_error(tmp_path):
    script = """
    job = save_async(broken(), state, step=1)
    assert "Input/output" in str(job.exception())
    """

    assert run(tmp_path, script).returncode == 0


def test_an_uncaught_exception_keeps_its_code_and_the_save_is_finished(tmp_path):
    script = """
    save_async(root, state, step=1, progress=slow)
    sys.exit(7)
    """

    done = run(tmp_path, script)

    assert done.returncode == 7
    assert mc.load(tmp_path)["epoch"] == 3


@pytest.mark.slow
def test_an_interrupt_at_exit_cancels_the_save_cleanly(tmp_path):
    script = """
    save_async(root, state, step=1, progress=lambda event: time.sleep(3))
    print("leaving", flush=True)
    """
    code = PRELUDE + textwrap.dedent(script)
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "leaving\n"
    time.sleep(0.7)

    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)

    assert child.returncode == 0
    assert mc.list_checkpoints(tmp_path) == []
    assert [p for p in (tmp_path / ".staging").rglob("*") if p.is_file()] == []


def test_a_killed_background_save_leaves_nothing_a_reader_can_see(tmp_path):
    mc.save(tmp_path, {"epoch": 1}, step=1)
    script = """
    save_async(root, state, step=2, progress=lambda event: os.kill(os.getpid(), 9))
    time.sleep(30)
    """

    assert run(tmp_path, script).returncode == -signal.SIGKILL

    assert [info.step for info in mc.list_checkpoints(tmp_path)] == [1]
    assert mc.load(tmp_path) == {"epoch": 1}


def test_a_forked_child_begins_with_nothing_in_flight(tmp_path):
    script = """
    from model_checkpoint.errors import SaveAbandoned
    opened, reached = threading.Event(), threading.Event()
    def gate(event):
        reached.set()
        opened.wait(30)
    job = save_async(root, state, step=1, progress=gate)
    queued = save_async(root, state, step=2, busy="queue")
    assert reached.wait(30)
    child = os.fork()
    if child == 0:
        for one in (job, queued):
            try:
                one.result(5)
                os._exit(2)
            except SaveAbandoned as error:
                assert "belongs to the process that started it" in str(error)
        assert POOL.total == 0
        os._exit(0 if save_async(root, {"epoch": 5}, step=5).result(30).step == 5 else 3)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    opened.set()
    assert status == 0, status
    assert job.result().step == 1
    assert queued.result().step == 2
    """

    done = run(tmp_path, script)

    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(info.step for info in mc.list_checkpoints(tmp_path)) == [1, 2, 5]
    assert [health.ok for health in mc.verify(tmp_path)] == [True] * 3


def test_a_forked_child_can_leave_without_waiting_for_its_parents_saves(tmp_path):
    script = """
    import multiprocessing
    save_async(root, state, step=1, progress=lambda event: time.sleep(0.5))
    child = multiprocessing.get_context("fork").Process(target=lambda: None)
    child.start()
    child.join(20)
    assert child.exitcode == 0, child.exitcode
    """

    assert run(tmp_path, script).returncode == 0
    assert mc.load(tmp_path)["epoch"] == 3


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs /proc to reset the peak of a process")
@pytest.mark.slow
@pytest.mark.parametrize("share", [0.125, 0.5, 2.0])
@pytest.mark.parametrize(
    "options",
    ["", "compression=mc.CompressionLevel.FAST", "compression=mc.CompressionLevel.MAXIMUM", "incremental=True"],
)
def test_peak_memory_of_a_process_stays_below_the_ceiling(tmp_path, options, share):
    script = f"""
    share, options = {share}, dict({options})
    def memory(key):
        rows = open("/proc/self/status").read().splitlines()
        return next(int(row.split()[1]) * 1024 for row in rows if row.startswith(key))
    size = 128 << 20
    numbers = np.random.default_rng(0).standard_normal(size // 8)
    big = {{"w": numbers[: size // 16], "turned": numbers[size // 16 :].reshape(2048, -1).T, "few": [np.ones(9)]}}
    save_async(root, {{"a": np.ones(100)}}, step=0, **options).result()  # whatever a first save imports and starts
    finish_saves()
    for step in (1, 2):
        open("/proc/self/clear_refs", "w").write("5")  # the peak starts again from here
        before = memory("VmRSS")
        POOL.peak = 0
        held = POOL.total
        save_async(root, big, step=step, memory_limit=int(share * size), **options).result()
        print(memory("VmHWM") - before + held, max(POOL.peak, held))
    """

    done = run(tmp_path, script)

    assert done.returncode == 0, done.stderr
    limit, slack = int(share * (128 << 20)), 2 << 20  # stacks of threads, digests, the manifest
    for line in done.stdout.splitlines():
        resident, staged = map(int, line.split())
        assert 0 < staged <= limit
        assert resident <= limit + slack
    loaded, numbers = mc.load(tmp_path, step=2), np.random.default_rng(0).standard_normal(1 << 24)
    assert np.array_equal(loaded["w"], numbers[: 1 << 23])
    assert np.array_equal(loaded["turned"].T.reshape(-1), numbers[1 << 23 :])


LAZY = """
import torch
weight = torch.nn.Parameter(torch.ones(3 << 20))
optimizer = torch.optim.SGD([weight], lr=0.5)
weight.grad = torch.ones_like(weight)
"""


@pytest.mark.slow
def test_a_lazy_save_is_finished_at_exit_though_nobody_steps_again(tmp_path):
    script = LAZY + "save_async(root, {'w': weight, 'o': optimizer}, step=1, lazy=True, memory_limit=5 << 20)"

    done = run(tmp_path, script)

    assert (done.returncode, done.stderr) == (0, "")
    assert mc.load(tmp_path, framework="numpy")["w"].sum() == 3 << 20


@pytest.mark.slow
def test_a_forked_child_steps_without_waiting_for_its_parents_copy(tmp_path):
    script = """
    opened = threading.Event()
    def gate(event):
        if optimizer._optimizer_step_pre_hooks:
            opened.wait(30)
    job = save_async(root, {'w': weight, 'o': optimizer}, step=1, lazy=True, memory_limit=5 << 20, progress=gate)
    assert job.state.value == "staging"
    child = os.fork()
    if child == 0:
        optimizer.step()
        os._exit(0 if weight[0].item() == 0.5 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    opened.set()
    job.result()
    """

    done = run(tmp_path, LAZY + textwrap.dedent(script))

    assert (done.returncode, done.stderr) == (0, "")
    assert mc.load(tmp_path, framework="numpy")["w"].sum() == 3 << 20
