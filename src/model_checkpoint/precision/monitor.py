"""PerformanceMonitor: how long optimizer steps take, over a rolling window."""

from __future__ import annotations

import logging
import statistics
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from model_checkpoint.precision.errors import StepRefused
from model_checkpoint.precision.options import MixedPrecisionOptions

_LOG = logging.getLogger("model_checkpoint.precision")


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceStats:
    """Step times in milliseconds over the window; totals over the whole run."""

    total_steps: int = 0
    average_step_ms: float = 0.0
    last_step_ms: float = 0.0
    min_step_ms: float = 0.0
    max_step_ms: float = 0.0
    std_step_ms: float = 0.0
    total_seconds: float = 0.0

    @property
    def steps_per_second(self) -> float:
        """Measured steps per second of step time; 0.0 before the first."""
        return self.total_steps / self.total_seconds if self.total_seconds > 0 else 0.0

    def to_tree(self) -> dict[str, Any]:
        """Plain values, one per field."""
        return asdict(self)


class PerformanceMonitor:
    """Measures steps between :meth:`start_step` and :meth:`end_step`.

    Example:
        >>> monitor = PerformanceMonitor()
        >>> monitor.start_step(); monitor.end_step()
        >>> monitor.get_stats().total_steps
        1
    """

    def __init__(self, options: MixedPrecisionOptions | None = None) -> None:
        chosen = options or MixedPrecisionOptions()
        self._interval = chosen.performance_log_interval
        self._window: deque[float] = deque(maxlen=self._interval)
        self._started: float | None = None
        self._steps = 0
        self._seconds = 0.0

    def start_step(self) -> None:
        """Start the clock; a step already started is begun anew."""
        self._started = time.perf_counter()

    def end_step(self) -> None:
        """Stop the clock and log a summary every ``performance_log_interval`` steps."""
        if self._started is None:
            raise StepRefused("performance monitor: end_step() without start_step(). Call start_step() first.")
        seconds = time.perf_counter() - self._started
        self._started = None
        self._window.append(seconds * 1e3)
        self._steps += 1
        self._seconds += seconds
        if self._steps % self._interval == 0:
            _LOG.info("%s", self.get_summary())

    def get_stats(self) -> PerformanceStats:
        """A snapshot."""
        if not self._window:
            return PerformanceStats(total_steps=self._steps, total_seconds=self._seconds)
        return PerformanceStats(
            total_steps=self._steps,
            average_step_ms=statistics.fmean(self._window),
            last_step_ms=self._window[-1],
            min_step_ms=min(self._window),
            max_step_ms=max(self._window),
            std_step_ms=statistics.pstdev(self._window),
            total_seconds=self._seconds,
        )

    def get_summary(self) -> str:
        """One line for a log."""
        stats = self.get_stats()
        return (
            f"{stats.total_steps} steps, {stats.steps_per_second:.1f}/s; last {len(self._window)}: "
            f"{stats.average_step_ms:.2f} ms +- {stats.std_step_ms:.2f} "
            f"({stats.min_step_ms:.2f} to {stats.max_step_ms:.2f})"
        )

    def restore(self, stats: PerformanceStats) -> None:
        """Continue the totals of an earlier run; the window starts empty."""
        self.reset()
        self._steps, self._seconds = stats.total_steps, stats.total_seconds

    def reset(self) -> None:
        """Forget everything measured."""
        self._window.clear()
        self._started, self._steps, self._seconds = None, 0, 0.0
