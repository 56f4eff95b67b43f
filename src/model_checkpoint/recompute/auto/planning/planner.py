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

import numpy as np
import numpy.typing as npt

from model_checkpoint.recompute.auto.planning.schedule import Keep, Region, Schedule

Rows = npt.NDArray[np.float64]  # seconds: a row per last stage, an entry per number of slots
Choices = npt.NDArray[np.int16]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A stage kept in one mode, as the tables see it."""

    node: Keep
    slots: int  # what it leaves behind
    freed: bool  # nobody holds its output


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
        return float(self._held[0][-1, slot]) if slot >= 0 else math.inf

    def schedule(self, budget: int) -> Schedule | None:
        """The fastest schedule within ``budget`` bytes, or None if nothing fits."""
        slot = self._slot_of(budget)
        if slot < 0 or not math.isfinite(self._held[0][-1, slot]):
            return None
        return self._rebuild(0, len(self.chain.stages) - 1, slot=slot, paid=True)

    def front(self) -> tuple[ParetoPoint, ...]:
        """Every budget at which the best time improves, smallest first."""
        row = self._held[0][-1]
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
        """Fill the tables, from the last first stage to the first.

        ``_held[s][t - s, m]``: stages ``s..t`` in ``m`` slots, when the input of ``s`` is paid for by the caller;
        ``_free``: that input can be rebuilt and is not held. ``_shifted`` is ``_held`` moved up by the size of that
        input: the cost when it is paid out of ``m``. The choices say which candidate each entry came from.
        """
        self._held: dict[int, Rows] = {}
        self._free: dict[int, Rows] = {}
        self._shifted: dict[int, Rows] = {}
        self._held_choice: dict[int, Choices] = {}
        self._free_choice: dict[int, Choices] = {}
        stages = self.chain.stages
        self._gradients = [stage.gradient for stage in stages[:-1]] + [0]
        self._outputs = [self._units(stage.output) for stage in stages]
        self._kept = [[self._keep_of(number, mode) for mode in stage.modes] for number, stage in enumerate(stages)]
        self._regions: dict[tuple[int, int, int], Region] = {}
        for first in reversed(range(len(stages))):
            self._held[first], self._held_choice[first] = self._best_from(first, paid=True)
            if first > 0:
                self._shifted[first] = _shift(self._held[first], self._outputs[first - 1])
            if self._can_free(first - 1):
                self._free[first], self._free_choice[first] = self._best_from(first, paid=False)

    def _best_from(self, first: int, *, paid: bool) -> tuple[Rows, Choices]:
        """The best of keeping ``first`` and of all regions that start there, for every last stage at once."""
        shape = (len(self.chain.stages) - first, self.slots + 1)
        best, choice = np.full(shape, np.inf), np.full(shape, -1, dtype=np.int16)
        self._keep(first, best, choice, paid=paid)
        self._recompute(first, best, choice, paid=paid)
        return best, choice

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

    def _keep(self, first: int, best: Rows, choice: Choices, *, paid: bool) -> None:
        """Improve the rows by each mode of ``first``, kept."""
        size, rebuild = self._input_costs(first, paid)
        for number, mode in enumerate(self.chain.stages[first].modes):
            rows = np.zeros_like(best)
            if len(rows) > 1:
                kept = self._kept[first][number]
                rows[1:] = _shift((self._free if kept.freed else self._held)[first + 1], kept.slots)
            rows += mode.forward + mode.backward + rebuild
            needs = [
                size + max(mode.forward_peak + gradient, mode.backward_peak) for gradient in self._gradients[first:]
            ]
            self._improve(best, choice, rows, needs=needs, pick=_KEEP + number)

    def _keep_of(self, number: int, mode: Mode) -> _Kept:
        stage = self.chain.stages[number]
        freed = mode.frees_output and stage.linked
        left = mode.saved + (stage.output if mode.frees_output and not freed else 0)
        return _Kept(node=Keep(stage=number, mode=mode.name), slots=self._units(left), freed=freed)

    def _recompute(self, first: int, best: Rows, choice: Choices, *, paid: bool) -> None:
        """Improve the rows by every region from ``first``; a region's own row is final when its turn comes."""
        stages, (size, rebuild) = self.chain.stages, self._input_costs(first, paid)
        inner = best if paid else self._shifted[first]
        peak, seconds, carried = 0, 0.0, 0
        for stop in range(first, min(self._reach(first), len(stages) - 2) + 1):
            peak = max(peak, carried + stages[stop].bare_peak)
            seconds += stages[stop].bare
            carried = stages[stop].output
            rows = self._shifted[stop + 1] + inner[stop - first]
            rows += seconds + rebuild + self.chain.region_cost
            needs = [size + gradient + peak for gradient in self._gradients[stop + 1 :]]
            after = stop + 1 - first
            self._improve(best[after:], choice[after:], rows, needs=needs, pick=stop)

    def _improve(self, best: Rows, choice: Choices, rows: Rows, *, needs: list[int], pick: int) -> None:
        """Take over what is quicker in ``rows``, each of which takes ``needs`` bytes at least."""
        for row, need in zip(rows, needs, strict=True):
            row[: self._units(need)] = np.inf
        better = rows < best
        np.copyto(best, rows, where=better)
        np.copyto(choice, pick, where=better)

    def _reach(self, first: int) -> int:
        """The last stage a region from ``first`` may include; ``first - 1`` if it may not start there."""
        stages, stop = self.chain.stages, first - 1
        while stop + 1 < len(stages) and stages[stop + 1].recomputable:
            stop += 1
            if not stages[stop].linked:
                break
        return stop

    def _rebuild(self, first: int, last: int, *, slot: int, paid: bool) -> Schedule:
        """Read the chosen schedule of ``first..last`` back from the tables."""
        nodes: list[Keep | Region] = []
        while first <= last:
            pick = int((self._held_choice if paid else self._free_choice)[first][last - first, slot])
            if pick >= _KEEP:
                kept = self._kept[first][pick - _KEEP]
                nodes.append(kept.node)
                slot, paid, first = slot - kept.slots, not kept.freed, first + 1
                continue
            inner = slot if paid else slot - self._outputs[first - 1]
            nodes.append(self._region(first, pick, inner))
            slot, paid, first = slot - self._outputs[pick], True, pick + 1
        return tuple(nodes)

    def _region(self, first: int, last: int, slot: int) -> Region:
        """A region by its best body; schedules share their regions."""
        key = first, last, slot
        if key not in self._regions:
            body = self._rebuild(first, last, slot=slot, paid=True)
            self._regions[key] = Region(start=first, stop=last, body=body)
        return self._regions[key]


def _shift(rows: Rows, by: int) -> Rows:
    """``rows`` as seen with ``by`` slots less: entry m is ``rows[..., m - by]``."""
    if by <= 0:
        return rows.copy()
    moved = np.full_like(rows, np.inf)
    moved[..., by:] = rows[..., : max(rows.shape[-1] - by, 0)]
    return moved
