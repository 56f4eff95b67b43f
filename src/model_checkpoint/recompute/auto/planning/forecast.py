"""Forecast: run a schedule on paper, event by event, with the workers beside the main thread.

The planner's recurrence knows one thread. What workers add does not fit it: a region that is run ahead hides behind
the backward of what comes after it and lives in memory during that time; a group on its way to disk hides behind the
next stage and is held until that stage ends; a group read ahead hides behind backward and is held meanwhile. So the
planner's schedules are candidates, and this module says what each of them takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from model_checkpoint.recompute.auto.planning.planner import Chain, Mode, Stage, lone_bytes
from model_checkpoint.recompute.auto.planning.schedule import Keep, Region, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """What runs beside the main thread; ``overlap`` is the share of its time that a worker really gets."""

    overlap: float = 0.0
    prefetch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What one step by a schedule takes."""

    seconds: float
    peak: int
    least: int  # the peak if no region were run ahead
    late: frozenset[int] = frozenset()  # positions of regions left to backward by :meth:`Forecaster.thin`


class Forecaster:
    """Forecasts for many schedules of one chain; nodes that they share are looked at once.

    Example:
        >>> mode = Mode(name="full", forward=1, backward=2, saved=10, forward_peak=10, backward_peak=14)
        >>> chain = Chain(stages=(Stage(output=4, gradient=4, bare=1, bare_peak=4, modes=(mode,)),) * 3)
        >>> again = tuple(Region(start=i, stop=i, body=(Keep(stage=i),)) for i in (0, 1))
        >>> Forecaster(chain).take((*again, Keep(stage=2)))
        Forecast(seconds=11.0, peak=22, least=22, late=frozenset())
        >>> forecaster = Forecaster(chain, Lanes(overlap=1.0, prefetch=True))
        >>> [(takes.seconds, takes.peak) for takes in forecaster.thin((*again, Keep(stage=2)))]
        [(10.0, 28), (11.0, 22)]
    """

    def __init__(self, chain: Chain, lanes: Lanes | None = None) -> None:
        self.chain, self.lanes = chain, lanes or Lanes()
        self._kept = [{mode.name: _keep_costs(stage, mode) for mode in stage.modes} for stage in chain.stages]
        self._again: dict[Schedule, _Costs] = {}

    def take(self, schedule: Schedule) -> Forecast:
        """Say what one step by ``schedule`` takes."""
        return next(self.thin(schedule))

    def thin(self, schedule: Schedule) -> Iterator[Forecast]:
        """What ``schedule`` takes, then with fewer and fewer regions run ahead, while that means less memory."""
        ahead = _RegionsAhead(self.lanes, _Span(self, schedule), schedule)
        while True:
            yield ahead.forecast()
            crowded = ahead.crowded()
            if crowded is None:
                return
            ahead.leave(crowded)

    def costs(self, node: Keep | Region) -> _Costs:
        """What a node takes, wherever it stands."""
        if isinstance(node, Keep):
            return self._kept[node.stage][node.mode]
        if node.body not in self._again:
            self._again[node.body] = self._region_costs(node)
        return self._again[node.body]

    def _region_costs(self, node: Region) -> _Costs:
        """A region: its first run leaves only its output, its second is a span of its own."""
        stages = self.chain.stages[node.start : node.stop + 1]
        inner = _Span(self, node.body)
        return _Costs(
            forward=sum((stage.bare for stage in stages), self.chain.region_cost),
            entry=stages[0].bare,
            entry_peak=stages[0].bare_peak,
            forward_peak=max(
                (before.output + stage.bare_peak for before, stage in pairwise(stages)), default=stages[0].bare_peak
            ),
            left=stages[-1].output,
            left_last=stages[-1].output,
            backward=inner.backward,
            backward_peak=inner.backward_peak,
            again=inner,
            quiet=all(stage.ahead for stage in stages),
        )


def exposed(chain: Chain, share: float) -> Chain:
    """The chain as one thread sees it, when ``share`` of what workers can do still costs its time."""
    return replace(chain, stages=tuple(_exposed(stage, share) for stage in chain.stages))


def _exposed(stage: Stage, share: float) -> Stage:
    modes = tuple(
        replace(mode, forward=mode.forward + share * mode.write, backward=mode.backward + share * mode.read)
        for mode in stage.modes
    )
    return replace(stage, modes=modes)


def hidden_again(chain: Chain, share: float) -> Chain:
    """The chain when ``share`` of every second run is hidden behind backward."""
    return replace(chain, stages=tuple(replace(s, bare=(1 - share) * s.bare) if s.ahead else s for s in chain.stages))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Costs:
    """Seconds and bytes of one node; all bytes exclude what is held before it."""

    forward: float
    entry: float  # seconds of its first stage, behind which the writes of the node before hide
    entry_peak: int  # of its first stage, to which comes what the node before has on its way out
    forward_peak: int
    left: int
    left_last: int  # what it leaves behind when nothing follows
    backward: float
    backward_peak: int
    missing: int = 0  # size of an output that nobody holds, and the seconds to have it again
    rebuild: float = 0.0
    moved: int = 0
    fetched: int = 0
    write: float = 0.0
    read: float = 0.0
    again: _Span | None = None  # the second run of a region
    quiet: bool = False  # a worker may do that


def _keep_costs(stage: Stage, mode: Mode) -> _Costs:
    free = mode.frees_output and stage.linked
    return _Costs(
        forward=mode.forward + mode.write,
        entry=mode.forward,
        entry_peak=mode.forward_peak,
        forward_peak=mode.forward_peak,
        left=mode.saved if free or not mode.frees_output else mode.saved + stage.output,
        left_last=lone_bytes(mode),
        backward=mode.backward,
        backward_peak=mode.backward_peak,
        missing=stage.output if free else 0,
        rebuild=mode.rebuild if free else 0.0,
        moved=mode.moved,
        fetched=mode.fetched,
        write=mode.write,
        read=mode.read,
    )


class _Span:
    """Stages in a row: all forward, then all backward by one thread; bytes count from what is held before."""

    def __init__(self, forecaster: Forecaster, nodes: Schedule) -> None:
        self.nodes = [forecaster.costs(node) for node in nodes]
        last = nodes[-1].stage if isinstance(nodes[-1], Keep) else nodes[-1].stop
        self.gradient = forecaster.chain.stages[last].gradient if last < len(forecaster.chain.stages) - 1 else 0
        self.held = self.forward_peak = 0
        self.bases: list[int] = []  # per node: what is held before it
        self.returns: list[float] = []  # and the seconds of its way back
        self.forward = self._go(forecaster.lanes.overlap)
        self.regions = [(at, node.again) for at, node in enumerate(self.nodes) if node.again is not None]
        self.seconds = sum(self.returns) + self._wait_for_reads(forecaster.lanes.overlap)  # backward, less second runs
        self.backward = self.seconds + sum(again.forward for _, again in reversed(self.regions))
        self.needs = [self.way_back(at) for at in range(len(self.nodes))]
        self.backward_peak = max(self.needs)

    def _go(self, overlap: float) -> float:
        """Forward: what each node finds and leaves, and the seconds, less the writing that passes behind the next."""
        seconds = hidden = write = rebuild = 0.0
        held = missing = moved = peak = 0
        for node in self.nodes:
            base = held + missing
            self.bases.append(base)
            self.returns.append(rebuild + node.backward)
            peak = max(peak, base + node.forward_peak, base + moved + node.entry_peak)
            seconds += node.forward
            hidden += min(write, overlap * node.entry)
            held += node.left
            missing, rebuild, moved, write = node.missing, node.rebuild, node.moved, node.write
        self.held = held - node.left + node.left_last
        self.forward_peak = peak + self.gradient
        return seconds - hidden

    def _wait_for_reads(self, overlap: float) -> float:
        """Seconds that backward waits for bytes to come back; they are held from the read before on."""
        waited, later = 0.0, -1
        for at in reversed(range(len(self.nodes))):
            node = self.nodes[at]
            if not node.fetched:
                continue
            for other in range(at + 1, later + 1):
                self.bases[other] += node.fetched
            waited += _stall(node.read, overlap, self.returns[at + 1 : later + 1])
            later = at
        return waited

    def way_back(self, at: int, ahead: int = 0) -> int:
        """The most that is held while backward is at a node, with ``ahead`` bytes of another region."""
        node = self.nodes[at]
        need = node.backward_peak + ahead
        return self.bases[at] + (need if node.again is None else max(node.again.forward_peak, need))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guest:
    """A region that runs ahead: the nodes at which backward is meanwhile, and what it takes besides."""

    beside: range
    late: float  # seconds that backward waits if the region is left to it
    brief: int  # bytes on top while it runs


class _RegionsAhead:
    """The regions of one step that run ahead of backward, by their position in the schedule."""

    def __init__(self, lanes: Lanes, span: _Span, schedule: Schedule) -> None:
        self._span, self._needs = span, list(span.needs)
        self._stalls: dict[int, float] = {}  # seconds that backward waits for second runs, or does them itself
        self._guests: dict[int, _Guest] = {}
        self._hosts: dict[int, int] = {}  # which region is there while backward is at a node
        self._late: frozenset[int] = frozenset()
        later = -1
        for at, again in reversed(span.regions):
            node, self._stalls[at] = schedule[at], again.forward
            if lanes.prefetch and later >= 0 and isinstance(node, Region) and node.ahead and span.nodes[at].quiet:
                self._stalls[at] = _stall(again.forward, lanes.overlap, span.returns[at + 1 : later + 1])
                self._invite(at, again, range(at + 1, later + 1))
            later = at

    def _invite(self, at: int, again: _Span, beside: range) -> None:
        brief = again.forward_peak - again.gradient - again.held
        self._guests[at] = _Guest(beside=beside, late=again.forward, brief=brief)
        for other in beside:
            self._needs[other] = self._span.way_back(other, again.held)
            self._hosts[other] = at

    def forecast(self) -> Forecast:
        """What the step takes now."""
        span = self._span
        brief = max((guest.brief for guest in self._guests.values()), default=0)
        return Forecast(
            seconds=span.forward + (span.seconds + sum(self._stalls.values())),
            peak=max(span.forward_peak, *self._needs) + max(brief, 0),
            least=max(span.forward_peak, span.backward_peak),
            late=self._late,
        )

    def crowded(self) -> int | None:
        """The region that would lower the peak by not being run ahead, if one can be told."""
        if not self._guests:
            return None
        fullest = self._needs.index(max(self._needs))
        if self._needs[fullest] > self._span.forward_peak and fullest in self._hosts:
            return self._hosts[fullest]
        brief, at = max((guest.brief, at) for at, guest in self._guests.items())
        return at if brief > 0 else None

    def leave(self, at: int) -> None:
        """Leave a region to backward."""
        guest = self._guests.pop(at)
        self._late |= {at}
        self._stalls[at] = guest.late
        for other in guest.beside:
            self._needs[other] = self._span.needs[other]
            del self._hosts[other]


def _stall(work: float, overlap: float, beside: list[float]) -> float:
    """What is left of a worker's work when backward has passed the nodes beside it."""
    return max(work - overlap * sum(beside), 0.0)
