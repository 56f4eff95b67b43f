"""Planner: the fastest keep/recompute schedule of a chain within a number of bytes.

Pure arithmetic over measured costs; knows no tensors. The recurrence is the persistent-schedule dynamic programme for
heterogeneous chains, extended by several modes per stage and by modes whose output can be rebuilt, so that the next
stage pays for its input only while it runs. Sizes are rounded up to slots, so a plan never needs more than it says.
What workers do beside the main thread does not fit the recurrence: the table takes the seconds of ``forward``,
``backward`` and ``bare`` as they are, and :mod:`forecast` says what a schedule really takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from model_checkpoint.recompute.schedule import Keep, Region, Schedule

Row = npt.NDArray[np.float64]
_KEEP = 10_000  # a choice below this is the last stage of a region, above it the mode of a kept stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way to keep a stage: seconds and bytes; all bytes exclude the stage's input."""

    name: str
    forward: float
    backward: float
    saved: int
    forward_peak: int
    backward_peak: int
    frees_output: bool = False  # ``saved`` then excludes the output, which can be rebuilt in ``rebuild`` seconds
    rebuild: float = 0.0
    alone: int | None = None  # ``saved`` when nobody holds the output; None: the same
    moved: int = 0  # bytes on their way out while the next stage runs
    fetched: int = 0  # bytes that come back ahead of backward
    write: float = 0.0  # seconds of the way out and back, not part of ``forward`` and ``backward``
    read: float = 0.0


def lone_bytes(mode: Mode) -> int:
    """What a kept stage holds when nobody holds its output."""
    return mode.saved if mode.alone is None else mode.alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one stage costs, however it is run."""

    output: int
    gradient: int
    bare: float  # seconds of a forward that saves nothing
    bare_peak: int
    modes: tuple[Mode, ...]
    linked: bool = True  # the next stage takes this output directly, so a region may span both
    recomputable: bool = True
    ahead: bool = True  # a worker may run it while backward is elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Stages in order; ``region_cost`` is the bookkeeping of one region in seconds."""

    stages: tuple[Stage, ...]
    region_cost: float = 0.0

    @property
    def keep_all_peak(self) -> int:
        """An upper bound for the bytes that plain training needs."""
        held = sum(max(m.saved + (s.output if m.frees_output else 0) for m in s.modes) for s in self.stages)
        return held + max(max(m.forward_peak, m.backward_peak) for s in self.stages for m in s.modes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint:
    """The least seconds reachable from ``bytes`` up."""

    bytes: int
    seconds: float


class Table:
    """All optimal schedules of one chain for every budget up to ``budget``.

    Example:
        >>> mode = Mode(name="full", forward=1, backward=2, saved=10, forward_peak=10, backward_peak=14)
        >>> stage = Stage(output=4, gradient=4, bare=1, bare_peak=4, modes=(mode,))
        >>> table = Table(Chain(stages=(stage,) * 3), budget=40, slots=40)
        >>> table.seconds(40), table.seconds(28)
        (9.0, 10.0)
        >>> table.schedule(28)
        (Keep(stage=0, mode='full'), Region(start=1, stop=1, body=(Keep(stage=1, mode='full'),), ...), ...)
    """

    def __init__(self, chain: Chain, *, budget: int, slots: int = 600) -> None:
        if not chain.stages:
            raise ValueError("chain: it has no stages, expected at least one. Give a model with layers.")
        if budget <= 0 or slots <= 0:
            raise ValueError(f"planner: budget {budget} and slots {slots} must be positive.")
        self.chain = chain
        self.slots = slots
        self.slot_bytes = budget / slots
        self._solve()

    def seconds(self, budget: int) -> float:
        """The least time within ``budget`` bytes; infinity if nothing fits."""
        slot = self._slot_of(budget)
        return float(self._held[0, -1, slot]) if slot >= 0 else math.inf

    def schedule(self, budget: int) -> Schedule | None:
        """The fastest schedule within ``budget`` bytes, or None if nothing fits."""
        slot = self._slot_of(budget)
        if slot < 0 or not math.isfinite(self._held[0, -1, slot]):
            return None
        return tuple(self._rebuild(0, len(self.chain.stages) - 1, slot=slot, paid=True))

    def front(self) -> tuple[ParetoPoint, ...]:
        """Every budget at which the best time improves, smallest first."""
        row = self._held[0, -1]
        points, best = [], math.inf
        for slot, seconds in enumerate(row):
            if seconds < best:
                best = float(seconds)
                points.append(ParetoPoint(bytes=math.ceil(slot * self.slot_bytes), seconds=best))
        return tuple(points)

    @property
    def floor(self) -> int | None:
        """The least bytes with any schedule, or None if even the whole budget is too small."""
        front = self.front()
        return front[0].bytes if front else None

    def _slot_of(self, budget: int) -> int:
        return min(self.slots, math.floor(budget / self.slot_bytes + 1e-9))

    def _units(self, size: float) -> int:
        return math.ceil(size / self.slot_bytes - 1e-9)

    def _solve(self) -> None:
        """Fill the tables span by span.

        ``_held[s, t, m]``: input of ``s`` is paid for by the caller; ``_free``: it can be rebuilt and is not held.
        ``_shifted[s, t]`` is ``_held`` moved up by that input's size: the cost when it is paid out of ``m``.
        """
        count = len(self.chain.stages)
        shape = (count, count, self.slots + 1)
        self._held = np.full(shape, np.inf)
        self._free = np.full(shape, np.inf)
        self._shifted = np.full(shape, np.inf)
        self._held_choice = np.full(shape, -1, dtype=np.int16)
        self._free_choice = np.full(shape, -1, dtype=np.int16)
        self._index = np.arange(self.slots + 1)
        for span in range(count):
            for first in range(count - span):
                self._solve_span(first, first + span)

    def _solve_span(self, first: int, last: int) -> None:
        stages = self.chain.stages
        gradient = stages[last].gradient if last < len(stages) - 1 else 0
        for paid in (True, False):
            table, choice = (self._held, self._held_choice) if paid else (self._free, self._free_choice)
            if not paid and not self._can_free(first - 1):
                continue
            rows = self._keep_rows(first, last, gradient=gradient, paid=paid)
            rows += self._region_rows(first, last, gradient=gradient, paid=paid)
            for row, pick in rows:
                better = row < table[first, last]
                table[first, last][better] = row[better]
                choice[first, last][better] = pick if isinstance(pick, int) else pick[better]
        if first > 0:
            self._shifted[first, last] = _shift(self._held[first, last], self._units(stages[first - 1].output))

    def _can_free(self, stage: int) -> bool:
        return (
            stage >= 0
            and self.chain.stages[stage].linked
            and any(m.frees_output for m in self.chain.stages[stage].modes)
        )

    def _input_costs(self, first: int, paid: bool) -> tuple[int, float]:
        """Bytes and seconds to have an input that nobody holds; nothing when it is paid for."""
        if paid:
            return 0, 0.0
        before = self.chain.stages[first - 1]
        return before.output, max(m.rebuild for m in before.modes if m.frees_output)

    def _keep_rows(self, first: int, last: int, *, gradient: int, paid: bool) -> list[tuple[Row, Any]]:
        """One candidate row per mode of ``first``, kept."""
        rows = []
        stage = self.chain.stages[first]
        size, rebuild = self._input_costs(first, paid)
        for number, mode in enumerate(stage.modes):
            need = self._units(size + max(mode.forward_peak + gradient, mode.backward_peak))
            if need > self.slots:
                continue
            if first == last:
                row = np.zeros(self.slots + 1)
            else:
                rest, saved = self._after(first, last, mode)
                row = _shift(rest, self._units(saved))
            row = row + (mode.forward + mode.backward + rebuild)
            row[:need] = np.inf
            rows.append((row, _KEEP + number))
        return rows

    def _after(self, first: int, last: int, mode: Mode) -> tuple[Row, int]:
        """The table row of what follows a kept stage, and the bytes the stage leaves behind."""
        stage = self.chain.stages[first]
        if mode.frees_output and stage.linked:
            return self._free[first + 1, last], mode.saved
        return self._held[first + 1, last], mode.saved + (stage.output if mode.frees_output else 0)

    def _region_rows(self, first: int, last: int, *, gradient: int, paid: bool) -> list[tuple[Row, Any]]:
        """The best of all regions that start at ``first``, over where they stop."""
        stop = min(self._reach(first), last - 1)
        if stop < first:
            return []
        stages, size = self.chain.stages, self._input_costs(first, paid)
        peaks, times, needs = 0, 0.0, []
        total = np.empty(stop - first + 1)
        for index in range(first, stop + 1):
            carried = stages[index - 1].output if index > first else 0
            peaks = max(peaks, carried + stages[index].bare_peak)
            times += stages[index].bare
            needs.append(self._units(size[0] + gradient + peaks))
            total[index - first] = times + size[1] + self.chain.region_cost
        inner = self._held if paid else self._shifted
        rows = inner[first, first : stop + 1] + self._shifted[first + 1 : stop + 2, last] + total[:, None]
        rows[self._index[None, :] < np.asarray(needs)[:, None]] = np.inf
        best = np.argmin(rows, axis=0)
        return [(rows[best, self._index], best + first)]

    def _reach(self, first: int) -> int:
        """The last stage a region from ``first`` may include; ``first - 1`` if it may not start there."""
        stages, stop = self.chain.stages, first - 1
        while stop + 1 < len(stages) and stages[stop + 1].recomputable:
            stop += 1
            if not stages[stop].linked:
                break
        return stop

    def _rebuild(self, first: int, last: int, *, slot: int, paid: bool) -> list[Keep | Region]:
        """Read the chosen schedule of ``first..last`` back from the tables."""
        nodes: list[Keep | Region] = []
        while first <= last:
            pick = int((self._held_choice if paid else self._free_choice)[first, last, slot])
            if pick >= _KEEP:
                mode = self.chain.stages[first].modes[pick - _KEEP]
                nodes.append(Keep(stage=first, mode=mode.name))
                if first < last:
                    slot -= self._units(self._after(first, last, mode)[1])
                paid = not (mode.frees_output and self.chain.stages[first].linked)
                first += 1
                continue
            inner = slot if paid else slot - self._units(self.chain.stages[first - 1].output)
            body = self._rebuild(first, pick, slot=inner, paid=True)
            nodes.append(Region(start=first, stop=pick, body=tuple(body)))
            slot -= self._units(self.chain.stages[pick].output)
            first, paid = pick + 1, True
        return nodes


def _shift(row: Row, by: int) -> Row:
    """``row`` as seen with ``by`` slots less: entry m is ``row[m - by]``."""
    moved = np.full_like(row, np.inf)
    if by <= 0:
        return row.copy()
    moved[by:] = row[: max(len(row) - by, 0)]
    return moved
