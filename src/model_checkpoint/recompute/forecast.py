"""Forecast: run a schedule on paper, event by event, with the workers beside the main thread.

The planner's recurrence knows one thread. What workers add does not fit it: a region that is run ahead hides behind
the backward of what comes after it and lives in memory during that time; a group on its way to disk hides behind the
next stage and is held until that stage ends; a group read ahead hides behind backward and is held meanwhile. So the
planner's schedules are candidates, and this module says what each of them takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from model_checkpoint.recompute.planner import Chain, Mode, Stage, lone_bytes
from model_checkpoint.recompute.schedule import Keep, Region, Schedule, stages_of

Node = Keep | Region


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
    crowded: int | None = None  # first stage of the region that, run ahead, adds to the peak


class Forecaster:
    """Forecasts for many schedules of one chain; second runs that they share are looked at once.

    Example:
        >>> mode = Mode(name="full", forward=1, backward=2, saved=10, forward_peak=10, backward_peak=14)
        >>> chain = Chain(stages=(Stage(output=4, gradient=4, bare=1, bare_peak=4, modes=(mode,)),) * 3)
        >>> again = tuple(Region(start=i, stop=i, body=(Keep(stage=i),)) for i in (0, 1))
        >>> Forecaster(chain).take((*again, Keep(stage=2)))
        Forecast(seconds=11.0, peak=22, crowded=None)
        >>> Forecaster(chain, Lanes(overlap=1.0, prefetch=True)).take((*again, Keep(stage=2)))
        Forecast(seconds=10.0, peak=28, crowded=0)
    """

    def __init__(self, chain: Chain, lanes: Lanes | None = None) -> None:
        self.chain, self.lanes = chain, lanes or Lanes()
        self._modes = [{mode.name: mode for mode in stage.modes} for stage in chain.stages]
        self._inner: dict[Schedule, _Span] = {}

    def take(self, schedule: Schedule) -> Forecast:
        """Say what one step by ``schedule`` takes."""
        span = _Span(self, schedule, top=True)
        peak = max(span.forward_peak, span.backward_peak) + span.transient
        return Forecast(seconds=span.forward + span.backward, peak=peak, crowded=span.crowded())

    def mode(self, node: Keep) -> Mode:
        """The mode of a kept stage."""
        return self._modes[node.stage][node.mode]

    def inner(self, body: Schedule) -> _Span:
        """The second run of a region; its bytes come on top of what is held then."""
        if body not in self._inner:
            self._inner[body] = _Span(self, body)
        return self._inner[body]


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


@dataclass(slots=True, kw_only=True)
class _Visit:
    """One node of a span: what is held before it, and what its way back takes."""

    node: Node
    base: int
    forward: float = 0.0
    backward: float = 0.0
    early: int = 0  # bytes of other groups, read before their time
    ahead: int = 0  # bytes of another region, run before its time
    guest: int | None = None  # the first stage of that region
    inner: _Span | None = None  # the second run of a region


class _Span:
    """Stages in a row: all forward, then all backward; bytes count from what is held before."""

    def __init__(self, book: Forecaster, nodes: Schedule, *, top: bool = False) -> None:
        self.book, self.stages, self.lanes, self.top = book, book.chain.stages, book.lanes, top
        self.held = self.transient = self.forward_peak = 0
        self.briefest = -1  # the region with the largest transient
        self.first, last = (order := stages_of(nodes))[0], order[-1]
        self.gradient = self.stages[last].gradient if last < len(self.stages) - 1 else 0
        self.visits = self._go(nodes)
        self.forward = sum(visit.forward for visit in self.visits) - self._hide_writes()
        self.backward = self._return()
        self.backward_peak = max(self._way_back(visit) for visit in self.visits)

    def _go(self, nodes: Schedule) -> list[_Visit]:
        """Forward: seconds, and what each node leaves behind."""
        visits: list[_Visit] = []
        held, missing, rebuild, waiting = 0, 0, 0.0, 0
        for node in nodes:
            visit = _Visit(node=node, base=held + missing, backward=rebuild)
            visits.append(visit)
            if isinstance(node, Region):
                held += self._pass_by(visit, node, waiting)
                missing, rebuild, waiting = 0, 0.0, 0
                continue
            stage, mode = self.stages[node.stage], self.book.mode(node)
            visit.forward = mode.forward + mode.write
            self._forward_needs(visit.base + waiting + mode.forward_peak)
            missing, rebuild = (stage.output, mode.rebuild) if mode.frees_output and stage.linked else (0, 0.0)
            kept = mode.saved if missing or not mode.frees_output else mode.saved + stage.output
            held, waiting = held + (lone_bytes(mode) if node is nodes[-1] else kept), mode.moved
        self.held = held
        return visits

    def _pass_by(self, visit: _Visit, node: Region, waiting: int) -> int:
        """A region's first run, which leaves only its output."""
        stages = self.stages
        visit.forward = self.book.chain.region_cost
        for index in range(node.start, node.stop + 1):
            carried = stages[index - 1].output if index > node.start else waiting
            self._forward_needs(visit.base + carried + stages[index].bare_peak)
            visit.forward += stages[index].bare
        return stages[node.stop].output

    def _forward_needs(self, size: int) -> None:
        self.forward_peak = max(self.forward_peak, size + self.gradient)

    def _hide_writes(self) -> float:
        """Seconds of writing that pass while the next stage runs."""
        hidden = 0.0
        for visit, after in zip(self.visits, self.visits[1:], strict=False):
            if isinstance(visit.node, Keep):
                node = after.node
                runs = self.book.mode(node).forward if isinstance(node, Keep) else self.stages[node.start].bare
                hidden += min(self.book.mode(visit.node).write, self.lanes.overlap * runs)
        return hidden

    def _return(self) -> float:
        """Seconds of backward; what is early is held from the node on that started it."""
        for visit in self.visits:
            if isinstance(visit.node, Keep):
                visit.backward += self.book.mode(visit.node).backward
            else:
                visit.inner = self.book.inner(visit.node.body)
                visit.backward += visit.inner.backward
        return sum(visit.backward for visit in self.visits) + self._wait_for_reads() + self._wait_for_regions()

    def _wait_for_reads(self) -> float:
        """Seconds that backward waits for bytes to come back."""
        modes = [self.book.mode(visit.node) if isinstance(visit.node, Keep) else None for visit in self.visits]
        stall, later = 0.0, None
        for position in reversed(range(len(modes))):
            mode = modes[position]
            if mode is None or not mode.fetched:
                continue
            between: list[_Visit] = self.visits[position + 1 : later + 1] if later is not None else []
            for visit in between:
                visit.early += mode.fetched
            stall += self._stall(mode.read, between)
            later = position
        return stall

    def _wait_for_regions(self) -> float:
        """Seconds that backward waits for second runs, or does them itself."""
        stall, later = 0.0, None
        for position in reversed(range(len(self.visits))):
            inner = self.visits[position].inner
            if inner is None:
                continue
            between: list[_Visit] = []
            if later is not None and self._runs_ahead(position):
                between = self.visits[position + 1 : later + 1]
                brief = inner.forward_peak - inner.gradient - inner.held
                self.transient, self.briefest = max((self.transient, self.briefest), (brief, inner.first))
            for visit in between:
                visit.ahead, visit.guest = inner.held, inner.first
            stall += self._stall(inner.forward, between)
            later = position
        return stall

    def crowded(self) -> int | None:
        """The first stage of a region that would lower the peak by not being run ahead, if one can be told."""
        fullest = max(self.visits, key=self._way_back)
        if self.backward_peak > self.forward_peak and fullest.guest is not None:
            return fullest.guest
        return self.briefest if self.transient else None

    def _stall(self, work: float, between: list[_Visit]) -> float:
        """What is left of a worker's work when backward has passed ``between``."""
        return max(work - self.lanes.overlap * sum(visit.backward for visit in between), 0.0)

    def _runs_ahead(self, position: int) -> bool:
        node = self.visits[position].node
        wanted = self.top and self.lanes.prefetch and isinstance(node, Region) and node.ahead
        return wanted and all(self.stages[index].ahead for index in stages_of((node,)))

    def _way_back(self, visit: _Visit) -> int:
        """The most that is held while backward is at a node."""
        if visit.inner is not None:
            return visit.base + visit.early + max(visit.inner.forward_peak, visit.inner.backward_peak + visit.ahead)
        assert isinstance(visit.node, Keep)
        return visit.base + self.book.mode(visit.node).backward_peak + visit.early + visit.ahead
