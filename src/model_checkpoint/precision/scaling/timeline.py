"""ScaleTimeline: when the loss scale moved and why, kept in the checkpoint, drawn on request."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from model_checkpoint.precision.errors import InvalidArgument

_WIDTH, _HEIGHT, _MARGIN = 720, 280, 48
_COLOURS = {
    "grew": "#2a7f3f",
    "backed_off": "#c0392b",
    "at_floor": "#c0392b",
    "fallback": "#8e44ad",
    "bad_loss": "#d68910",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleEvent:
    """One thing that happened to the scale or to a group."""

    step: int
    scale: float  # after the event
    event: str
    detail: str = ""  # the first offender, or the groups concerned


class ScaleTimeline:
    """The last events, oldest first.

    Example:
        >>> timeline = ScaleTimeline(capacity=8)
        >>> timeline.add(ScaleEvent(step=3, scale=32768.0, event="backed_off", detail="fc.weight"))
        >>> print(timeline.to_text())
        step         3  scale 2^15       backed_off  fc.weight
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._events: deque[ScaleEvent] = deque(maxlen=capacity)

    def add(self, event: ScaleEvent) -> None:
        """Append one event; the oldest gives way when the timeline is full."""
        self._events.append(event)

    def clear(self) -> None:
        """Forget all events."""
        self._events.clear()

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[ScaleEvent]:
        return iter(self._events)

    def to_tree(self) -> list[dict[str, Any]]:
        """Plain values, one mapping per event."""
        return [asdict(event) for event in self._events]

    def load_tree(self, tree: Sequence[Mapping[str, Any]]) -> None:
        """Replace all events by those of a tree."""
        events = [ScaleEvent(**event) for event in tree]
        self._events.clear()
        self._events.extend(events)

    def to_text(self) -> str:
        """One line per event."""
        return "\n".join(
            f"step {e.step:9d}  scale {_power(e.scale):<9}  {e.event:>10}  {e.detail}".rstrip() for e in self._events
        )

    def to_svg(self) -> str:
        """A drawing that any browser shows: the scale as steps, the events as dots with their text."""
        return _draw(list(self._events))

    def plot(self, path: str | Path) -> Path:
        """Write the drawing: ``.svg`` without any dependency, ``.png`` with matplotlib, ``.txt`` as lines."""
        target = Path(path)
        if target.suffix == ".svg":
            target.write_text(self.to_svg(), encoding="utf-8")
        elif target.suffix == ".txt":
            target.write_text(self.to_text() + "\n", encoding="utf-8")
        elif target.suffix == ".png":
            _paint(list(self._events), target)
        else:
            raise InvalidArgument(f"{target}: cannot draw {target.suffix!r}. Choose .svg, .png or .txt.")
        return target


def _power(scale: float) -> str:
    exponent = math.log2(scale) if scale > 0 else math.nan
    return f"2^{int(exponent)}" if exponent == int(exponent) else f"{scale:g}"


def _draw(events: Sequence[ScaleEvent]) -> str:
    frame = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="11">'
    )
    if not events:
        return f'{frame}<text x="{_MARGIN}" y="{_HEIGHT / 2}">no scale events</text></svg>\n'
    place = _Axes.around(events)
    dots = "".join(
        f'<circle cx="{place.x(e.step):.1f}" cy="{place.y(e.scale):.1f}" r="3" fill="{_COLOURS.get(e.event, "#555")}">'
        f"<title>step {e.step}: {e.event} at {_power(e.scale)} {escape(e.detail)}</title></circle>"
        for e in events
    )
    ticks = "".join(
        f'<text x="4" y="{place.y(2.0**power) + 4:.1f}">2^{power}</text>'
        for power in range(place.low, place.high + 1, place.stride)
    )
    steps = (
        f'<text x="{_MARGIN}" y="{_HEIGHT - 8}">step {events[0].step}</text>'
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 8}" text-anchor="end">step {events[-1].step}</text>'
    )
    return f'{frame}{ticks}{steps}<path d="{_trace(events, place)}" fill="none" stroke="#333"/>{dots}</svg>\n'


def _trace(events: Sequence[ScaleEvent], place: _Axes) -> str:
    """The scale as a staircase: along at the old value, then up or down to the new one."""
    corners = [(events[0].step, events[0].scale)]
    for before, event in pairwise(events):
        corners += [(event.step, before.scale), (event.step, event.scale)]
    return "M" + " L".join(f"{place.x(step):.1f},{place.y(scale):.1f}" for step, scale in corners)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """Where a step and a scale lie on the drawing; the scale axis is logarithmic."""

    first: int
    last: int
    low: int
    high: int

    @classmethod
    def around(cls, events: Sequence[ScaleEvent]) -> _Axes:
        powers = [math.log2(event.scale) for event in events]
        low, high = math.floor(min(powers)), math.ceil(max(powers))
        return cls(first=events[0].step, last=events[-1].step, low=low, high=max(high, low + 1))

    @property
    def stride(self) -> int:
        return max(1, (self.high - self.low) // 8)

    def x(self, step: int) -> float:
        span = max(self.last - self.first, 1)
        return _MARGIN + (step - self.first) / span * (_WIDTH - _MARGIN - 16)

    def y(self, scale: float) -> float:
        share = (math.log2(scale) - self.low) / (self.high - self.low)
        return _HEIGHT - 28 - share * (_HEIGHT - 44)


def _paint(events: Sequence[ScaleEvent], target: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidArgument(f"{target}: a PNG needs matplotlib. Install it, or choose .svg.") from error
    figure = Figure(figsize=(_WIDTH / 100, _HEIGHT / 100))
    axes = figure.subplots()
    axes.step([e.step for e in events], [e.scale for e in events], where="post", color="#333", linewidth=1)
    axes.scatter(
        [e.step for e in events], [e.scale for e in events], s=12, color=[_COLOURS.get(e.event, "#555") for e in events]
    )
    if events:
        axes.set_yscale("log", base=2)
    axes.set_xlabel("step")
    axes.set_ylabel("loss scale")
    figure.tight_layout()
    figure.savefig(target)
