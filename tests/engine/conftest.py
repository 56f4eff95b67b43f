"""A gate before the threads of a background save, opened when the test is over; and chunks cut small."""

import threading

import pytest

from model_checkpoint.engine.background.save_async import finish_saves
from model_checkpoint.options import LayoutLimits


class Gate:
    """A progress listener that holds the writing threads, and so a copy that waits for their memory.

    Where it has guards, what is copied at the call passes: the gate shuts when a guard is hooked.
    """

    def __init__(self):
        self.opened, self.reached = threading.Event(), threading.Event()
        self.events, self.guards = [], []

    def __call__(self, event):
        self.events.append(event)
        if self.guards and not any(guard._optimizer_step_pre_hooks for guard in self.guards):
            return
        self.reached.set()
        assert self.opened.wait(60)

    def open_soon(self):
        threading.Timer(0.15, self.opened.set).start()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.opened.set()
    finish_saves()


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 16 KiB, so that a small state has many."""
    limits = LayoutLimits(chunk_bytes=1 << 14)
    monkeypatch.setattr("model_checkpoint.engine.writing.request.LayoutLimits", lambda **_: limits)
    yield
    finish_saves()
