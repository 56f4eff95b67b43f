"""A run that is told to end, at whatever moment: it saves, and ends as the signal asks."""

import os
import signal

import numpy as np
import pytest
import torch

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


@pytest.mark.parametrize(("number", "error"), HOW)
def test_a_signal_in_the_work_at_the_end_of_the_last_epoch_ends_the_program_when_all_is_saved(tmp_path, number, error):
    total = {"sum": np.zeros(())}

    def body():
        for batches in (run := mc.Run(tmp_path, data=DATA, epochs=2, total=total)).epochs():
            total["sum"] += sum(batches)
            if run.epoch == 1:
                tell(number)
        pytest.fail("the loop should not have ended by itself")

    with pytest.raises(error, match="^143$" if error is SystemExit else "^$"):
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

    with pytest.raises(error, match="^143$" if error is SystemExit else "^$"):
        body()
    assert steps(tmp_path) == [3]


@pytest.mark.parametrize(("number", "error"), HOW)
def test_a_signal_during_the_last_save_ends_the_program_when_all_is_saved(tmp_path, number, error):
    telling = Telling(3, number)

    with pytest.raises(error, match="^143$" if error is SystemExit else "^$"):
        go_through(mc.Run(tmp_path, data=DATA, telling=telling), telling)

    assert steps(tmp_path) == [3]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def go_through(run, telling):
    telling.run = run
    list(run)
    pytest.fail("the loop should not have ended by itself")


def test_a_second_interrupt_during_the_last_save_ends_it_at_once(tmp_path):
    telling = Telling(3, signal.SIGINT, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="^$"):
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
    with pytest.raises(KeyboardInterrupt, match="^$"):
        body()
    assert told
    assert steps(tmp_path) == []
