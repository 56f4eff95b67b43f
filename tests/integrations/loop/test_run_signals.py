"""A run that is told to end, at whatever moment: it saves, and ends as the signal asks."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.integrations.killing import told_to_end
from tests.integrations.trainer_data import take_time
from torch.utils.data import DataLoader, Dataset

import model_checkpoint as mc

DATA = [1.0, 2.0, 3.0]
HOW = [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)]


def tell(*numbers):
    """Send signals to this process."""
    for number in numbers:
        os.kill(os.getpid(), number)


def steps(root):
    return [one.step for one in mc.list_checkpoints(root)] if (root / "checkpoints").exists() else []


class Telling:
    """An object that sends signals when it is saved for the last time."""

    def __init__(self, at, *numbers):
        self.at, self.numbers, self.run = at, numbers, None

    def state_dict(self):
        if self.run is not None and self.run.step == self.at:
            tell(*self.numbers)
        return {"a": 1}

    def load_state_dict(self, state):
        pass


def ended_by(error):
    """The program ends by the error that belongs to its signal."""
    return pytest.raises(error, match="^143$" if error is SystemExit else "^$")


@pytest.mark.parametrize(("number", "error"), HOW)
def test_a_signal_in_the_work_at_the_end_of_the_last_epoch_ends_the_program_when_all_is_saved(tmp_path, number, error):
    total = {"sum": np.zeros(())}

    def body():
        for batches in (run := mc.Run(tmp_path, data=DATA, epochs=2, total=total)).epochs():
            total["sum"] += sum(batches)
            if run.epoch == 1:
                tell(number)
        pytest.fail("the loop should not have ended by itself")

    with ended_by(error):
        body()
    assert steps(tmp_path) == [6]
    assert mc.load(tmp_path)["total"]["sum"] == 12.0


@pytest.mark.parametrize(("number", "error"), HOW)
def test_a_signal_in_the_last_body_while_gradients_wait_ends_the_program_when_all_is_saved(tmp_path, number, error):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], 0.1)

    def body():
        for batch in (run := mc.Run(tmp_path, data=DATA, weight=weight, optimizer=optimizer)):
            (weight * batch).sum().backward()
            if run.step == 1:
                optimizer.step()
            if run.step == 2:
                tell(number)
        pytest.fail("the loop should not have ended by itself")

    with ended_by(error):
        body()
    assert steps(tmp_path) == [3]


@pytest.mark.parametrize(("number", "error"), HOW)
def test_a_signal_during_the_last_save_ends_the_program_when_all_is_saved(tmp_path, number, error):
    telling = Telling(3, number)

    with ended_by(error):
        go_through(mc.Run(tmp_path, data=DATA, telling=telling), telling)

    assert steps(tmp_path) == [3]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def wait_in_vain():
    time.sleep(3)
    pytest.fail("the program should have ended")


@pytest.mark.parametrize(("number", "error"), HOW)
@pytest.mark.parametrize("how", ["break", "an exception"])
def test_a_signal_in_a_body_that_is_left_ends_the_program_after_it(tmp_path, number, error, how):
    """Nothing more comes that would obey it; and the body was left half done, so it is not saved."""

    def body():
        try:
            for _ in mc.Run(tmp_path, data=DATA, every=1, state={"a": 1}):
                tell(number)
                if how == "break":
                    break
                raise ArithmeticError
        except ArithmeticError:
            pass
        wait_in_vain()

    before = [signal.getsignal(one) for one, _ in HOW]
    with ended_by(error):
        body()

    assert steps(tmp_path) == []
    assert [signal.getsignal(one) for one, _ in HOW] == before


def test_a_signal_that_others_heard_of_is_theirs_where_a_loop_is_left(tmp_path):
    """As with a handler that makes the program break out of the loop."""
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("told"))
    try:
        for _ in mc.Run(tmp_path, data=DATA, state={"a": 1}):
            tell(signal.SIGTERM)
            if heard:
                break
        time.sleep(0.1)
        assert heard == ["told"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_interrupt_that_ended_a_body_at_once_does_not_come_again(tmp_path):
    def body():
        for _ in run:
            tell(signal.SIGINT, signal.SIGINT)

    run = mc.Run(tmp_path, data=DATA, state={"a": 1})
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        body()

    assert list(run) == DATA[1:]
    time.sleep(0.1)


def go_through(run, telling):
    telling.run = run
    list(run)
    pytest.fail("the loop should not have ended by itself")


def test_a_second_interrupt_during_the_last_save_ends_it_at_once(tmp_path):
    telling = Telling(3, signal.SIGINT, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        go_through(mc.Run(tmp_path, data=DATA, telling=telling), telling)

    assert steps(tmp_path) == []


def test_a_second_interrupt_ends_at_once_whatever_came_before(tmp_path):
    def body():
        for _ in mc.Run(tmp_path, data=DATA, state={"a": 1}):
            tell(signal.SIGTERM, signal.SIGINT)
            told.append("not held back by the first")
            tell(signal.SIGINT)
            pytest.fail("the second one should have ended the body")

    told = []
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        body()
    assert told
    assert steps(tmp_path) == []


class Slow(Dataset):
    """Takes its time, so that a signal finds its worker at work, and tells who reads it."""

    def __init__(self, told):
        self.told = Path(told)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        self.told.write_text(str(os.getpid()))
        time.sleep(0.01)
        return float(index)


def evaluated(root, out, *, pool, persistent=False):
    """Train on a list, and evaluate after each batch, which is read by a worker the run knows nothing of."""
    check = DataLoader(Slow(f"{out}.worker"), num_workers=1, persistent_workers=persistent)
    workers = multiprocessing.get_context("fork")
    for _ in mc.Run(root, data=range(1000), every=None, progress=False, state={"a": 1}):
        with workers.Pool(1) if pool else nullcontext() as made:
            for at, _ in enumerate(made.imap(Slow(f"{out}.worker").__getitem__, range(6)) if pool else check):
                if at == 1:  # then the others are read
                    take_time(out, 0.0)


def wait_after(begun):
    begun.set()
    time.sleep(60)


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("how", [{"pool": True}, {"pool": False}, {"pool": False, "persistent": True}])
def test_workers_of_an_evaluation_outlive_a_signal_to_all_and_end_with_the_program(tmp_path, how, number, code):
    out = tmp_path / "out"

    assert told_to_end(evaluated, tmp_path / "run", out, number=number, batches=3, **how) == code

    assert steps(tmp_path / "run")[0] >= 3
    worker = int(Path(f"{out}.worker").read_text())
    until = time.monotonic() + 10
    while is_there(worker):
        assert time.monotonic() < until, "the worker lives on"
        time.sleep(0.01)


def test_other_processes_of_a_body_end_by_signals_as_ever(tmp_path):
    context = multiprocessing.get_context("fork")
    process = context.Process(target=wait_after, args=(begun := context.Event(),))
    for _ in mc.Run(tmp_path, data=[1], state={"a": 1}):
        process.start()
        assert begun.wait(20)
        process.terminate()
        process.join(20)

    assert process.exitcode == -signal.SIGTERM


def test_a_program_that_is_told_to_end_does_not_wait_for_workers_that_heard_nothing(tmp_path):
    """As a program of its own, whose end is what is at stake."""
    program = """
        import multiprocessing, os, signal, model_checkpoint as mc
        from torch.utils.data import DataLoader
        loader = DataLoader(range(8), num_workers=2, persistent_workers=True)
        for _ in mc.Run("run", data=range(9), state={"a": 1}):
            pool = multiprocessing.get_context("fork").Pool(2)
            pool.map(abs, range(4)), list(loader)
            os.killpg(0, signal.SIGTERM)
            pool.map(abs, range(4)), list(loader)
        """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    done = subprocess.run(
        command, cwd=tmp_path, timeout=60, capture_output=True, text=True, check=False, start_new_session=True
    )

    assert done.returncode == 143, done.stderr
    assert "Traceback" not in done.stderr
    assert steps(tmp_path / "run") == [1]
