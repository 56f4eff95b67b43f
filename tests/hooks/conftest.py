"""What tests of hooks stand on: a manager that is closed, and hooks that wait until they are let go."""

import threading

import pytest

from model_checkpoint.hooks import HookManager


@pytest.fixture
def manager():
    manager = HookManager()
    yield manager
    manager.close()


class Gate:
    """A hook that says when it was entered, and stays until it is let go."""

    def __init__(self):
        self.entered, self.opened, self.left = threading.Event(), threading.Event(), threading.Event()
        self.calls = 0

    def __call__(self, context):
        self.calls += 1
        self.entered.set()
        self.opened.wait(60)
        context.set("too_late", True)
        self.left.set()
        return "through"


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.opened.set()
