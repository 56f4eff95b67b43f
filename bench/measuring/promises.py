"""Promises: a figure held against its bound, and how a program of its own ends that made some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Promise:
    """One figure and its bound."""

    name: str
    value: float
    bound: float
    least: bool = False  # whether the bound is a least value instead of a most

    @property
    def kept(self) -> bool:
        """Whether the figure, as printed, is within its bound; one that is not a number was not measured."""
        shown = round(self.value, 3)
        return shown >= self.bound if self.least else shown <= self.bound

    def line(self) -> str:
        """The figure as a line of the report."""
        sign = ">=" if self.least else "<="
        return f"  {self.name:<58} {self.value:8.3f}  {sign} {self.bound:<6g} {'ok' if self.kept else 'MISSED'}"


def all_kept(promises: Sequence[Promise]) -> bool:
    """Whether every one is."""
    return all(promise.kept for promise in promises)


def judge(promises: Sequence[Promise]) -> int:
    """Print every promise; the program's exit code, which is 1 if one is not kept."""
    print("\nPromises")
    for promise in promises:
        print(promise.line())
    return 0 if all_kept(promises) else 1
