"""Where gradients wait for a step nothing is saved, whichever of the optimizers they wait for."""

import logging

import pytest
import torch
from tests.ground.stored.stored_files import steps

import model_checkpoint as mc


def parameter():
    return torch.nn.Parameter(torch.zeros(1))


class Held:
    """Something that has an optimizer, as trainers and schedules do."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def state_dict(self):
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state):
        self.optimizer.load_state_dict(state["optimizer"])


def two():
    first, second = parameter(), parameter()
    return first, second, torch.optim.SGD([first], lr=0.1), torch.optim.Adam([second], lr=0.1)


HOLDERS = {
    "by name": lambda one, other: {"one": one, "other": other},
    "in a dict": lambda one, other: {"optimizers": {"one": one, "other": other}},
    "in a list": lambda one, other: {"optimizers": [one, {"more": [other]}]},
    "in an object": lambda one, other: {"one": Held(one), "others": {"other": Held(other)}},
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_save_waits_for_each_optimizer_that_accumulates(tmp_path, holder):
    one, other, often, seldom = two()
    run = mc.Run(tmp_path, data=range(9), every=1, one_=one, other_=other, **HOLDERS[holder](often, seldom))
    for _ in run:
        (one.sum() + other.sum()).backward()
        often.step()
        often.zero_grad()
        if run.step % 3 == 2:
            seldom.step()
            seldom.zero_grad()

    assert steps(tmp_path) == [3, 6, 9]


def test_an_optimizer_that_has_nothing_to_do_holds_nothing_up(tmp_path):
    one, other, often, idle = two()
    for _ in mc.Run(tmp_path, data=range(4), every=1, one=one, other=other, often=often, idle=idle):
        one.sum().backward()
        often.step()

    assert steps(tmp_path) == [1, 2, 3, 4]


def test_gradients_that_were_stepped_and_still_lie_there_wait_for_nothing(tmp_path):
    one, other, even, odd = two()
    run = mc.Run(tmp_path, data=range(6), every=1, one=one, other=other, even=even, odd=odd)
    for _ in run:
        weight, optimizer = (other, odd) if run.step % 2 else (one, even)
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    assert steps(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_that_no_boundary_can_be_saved_is_said_once(tmp_path, caplog):
    weight = parameter()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with caplog.at_level(logging.WARNING, "model_checkpoint.run"):
        for _ in mc.Run(tmp_path, data=range(20), every=3, weight=weight, optimizer=optimizer):
            weight.sum().backward()

    assert steps(tmp_path) == [20]
    [said] = [one.getMessage() for one in caplog.records]
    assert "no save since step 0, although every=3, because SGD did not step in the body just ended" in said


def test_which_gradients_wait_is_said(tmp_path, caplog):
    one, other, often, never = two()
    with caplog.at_level(logging.WARNING, "model_checkpoint.run"):
        for _ in mc.Run(tmp_path, data=range(9), every=2, one=one, other=other, often=often, never=never):
            (one.sum() + other.sum()).backward()
            often.step()
            often.zero_grad()

    assert steps(tmp_path) == [9]
    assert "because gradients wait in Adam" in caplog.text
