"""Held call: a function that begins, tells so, and ends when a test lets it."""

import threading


class HeldCall:
    """Returns ``value`` once ``go_on`` is set."""

    def __init__(self, value):
        self.value = value
        self.started, self.go_on = threading.Event(), threading.Event()

    def __call__(self):
        self.started.set()
        assert self.go_on.wait(30)
        return self.value
