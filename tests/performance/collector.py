"""Collector: how often the cycle collector of Python runs while something is done."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collections() -> Iterator[list[int]]:
    """The generations that are collected meanwhile, one after the other."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    try:
        yield seen
    finally:
        gc.callbacks.remove(note)
