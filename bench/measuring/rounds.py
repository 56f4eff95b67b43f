"""Rounds: every contender does the same things in every round, in rotating order, each from an empty folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from bench.measuring import disk
from bench.measuring.contenders import Contender
from bench.measuring.measure import Sample, measure
from bench.measuring.results import Table
from bench.measuring.states import State, many_small

T = TypeVar("T")
Say = Callable[[str], None]


class WrongBytes(Exception):
    """A load did not bring back what was saved."""


def rotated(items: Sequence[T], by: int) -> list[T]:
    """The same items, begun at another one."""
    by %= len(items)
    return [*items[by:], *items[:by]]


def rehearse(contenders: Sequence[Contender], folder: Path) -> None:
    """Let everyone import, compile and allocate what is done once per process."""
    state = many_small(20, 1024)
    live = state.blank()
    for one in contenders:
        disk.empty(folder)
        one.save(folder, state)
        one.load(folder, live)


class Trial:
    """Save and load one state; remembers the blank tensors everybody loads into."""

    def __init__(self, folder: Path, state: State, *, say: Say) -> None:
        self.folder, self.state, self._say = folder, state, say
        self.live = state.blank()

    def save(self, one: Contender, table: Table) -> None:
        """Measure a durable save into an empty folder."""
        disk.empty(self.folder)
        sample = measure(lambda: one.save(self.folder, self.state), self.state.nbytes)
        table.add(one.name, sample)
        self._say(f"  {one.name:30} {table.title:24} {sample.wall:8.3f} s")

    def load(self, one: Contender, table: Table, *, cold: bool) -> None:
        """Measure a load into existing tensors, with the page cache in the same state for everyone.

        A cold one is the better of two, as the raw read is the better of two ways: whether a buffer gets memory that
        suits the disk's driver is a matter of luck on a machine that has run for hours. A warm one takes a tenth of a
        second, which a neighbour of a virtual machine can double: it is the best of three.
        """
        tries = [self._load(one, table, cold=cold) for _ in range(2 if cold else 3)]
        sample = min(tries, key=lambda sample: sample.wall)
        table.add(one.name, sample)
        self._say(f"  {one.name:30} {table.title:24} {sample.wall:8.3f} s")

    def _load(self, one: Contender, table: Table, *, cold: bool) -> Sample:
        self.live.wipe()
        (disk.chill if cold else disk.warm)(self.folder)
        sample = measure(lambda: one.load(self.folder, self.live), self.state.nbytes)
        if not self.live.equals(self.state):
            raise WrongBytes(f"{one.name}: {table.title} did not bring back what was saved")
        return sample
