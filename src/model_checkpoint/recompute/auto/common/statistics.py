"""Statistics: what recomputation did, per layer and as a timeline."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from model_checkpoint import forks


@dataclass(slots=True, kw_only=True)
class LayerRecord:
    """Running totals of one layer."""

    hits: int = 0  # tensors that were there when backward asked
    recomputes: int = 0
    seconds: float = 0.0
    bytes_saved: int = 0
    prefetch_hits: int = 0
    stall_seconds: float = 0.0  # backward waited for the worker


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """One thing that happened, seconds after the statistics began."""

    at: float
    layer: str
    kind: str
    seconds: float


class RecomputeStatistics:
    """Thread-safe totals per layer and the latest events.

    Example:
        >>> statistics = RecomputeStatistics()
        >>> statistics.recomputed("layer1", 0.5)
        >>> statistics.layers()["layer1"].recomputes
        1
    """

    def __init__(self, *, events: int = 4096) -> None:
        self._lock = forks.lock()
        self._layers: dict[str, LayerRecord] = {}
        self._events: deque[tuple[float, str, str, float]] = deque(maxlen=events)
        self._start = time.perf_counter()

    def _of(self, layer: str) -> LayerRecord:
        record = self._layers.get(layer)
        if record is None:
            record = self._layers[layer] = LayerRecord()
        return record

    def hit(self, layer: str) -> None:
        """A tensor was there when backward asked."""
        with self._lock:
            self._of(layer).hits += 1

    def dropped(self, layer: str, size: int) -> None:
        """A tensor of ``size`` bytes was not kept."""
        with self._lock:
            self._of(layer).bytes_saved += size

    def recomputed(self, layer: str, seconds: float) -> None:
        """A layer ran again."""
        with self._lock:
            record = self._of(layer)
            record.recomputes += 1
            record.seconds += seconds
            self._note(layer, "recompute", seconds)

    def prefetched(self, layer: str, stall: float) -> None:
        """The worker had run a layer before backward asked, or backward waited ``stall`` seconds for it."""
        with self._lock:
            record = self._of(layer)
            record.prefetch_hits += 1
            record.stall_seconds += stall
            self._note(layer, "prefetch", stall)

    def _note(self, layer: str, kind: str, seconds: float) -> None:
        self._events.append((time.perf_counter() - self._start, layer, kind, seconds))

    def layers(self) -> dict[str, LayerRecord]:
        """A copy of the totals by layer."""
        with self._lock:
            return {name: LayerRecord(**asdict(record)) for name, record in self._layers.items()}

    def events(self) -> list[TimelineEvent]:
        """The latest events, oldest first."""
        with self._lock:
            return [
                TimelineEvent(at=at, layer=layer, kind=kind, seconds=spent) for at, layer, kind, spent in self._events
            ]

    def reset(self) -> None:
        """Start counting again."""
        with self._lock:
            self._layers.clear()
            self._events.clear()
            self._start = time.perf_counter()

    def to_dict(self) -> dict[str, Any]:
        """Totals and events as plain values."""
        return {
            "layers": {name: asdict(record) for name, record in self.layers().items()},
            "events": [asdict(event) for event in self.events()],
        }

    def to_json(self) -> str:
        """Totals and events as JSON."""
        return json.dumps(self.to_dict())

    def timeline(self, *, width: int = 40) -> str:
        """The latest events as text, one line each, with a bar as long as the event took.

        Example:
            >>> statistics = RecomputeStatistics()
            >>> statistics.recomputed("layer1", 0.002)
            >>> statistics.timeline(width=4)
            '... s  recompute  layer1    2.000 ms  ####'
        """
        events = self.events()
        longest = max((event.seconds for event in events), default=0.0) or 1.0
        return "\n".join(
            f"{e.at:10.4f} s  {e.kind:9s}  {e.layer}  {e.seconds * 1e3:7.3f} ms  "
            + "#" * max(1, round(width * e.seconds / longest))
            for e in events
        )
