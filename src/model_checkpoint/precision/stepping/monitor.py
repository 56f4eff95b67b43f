"""PerformanceMonitor: how long optimizer steps take, over a rolling window."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from model_checkpoint.precision.errors import InvalidArgument, StepRefused
from model_checkpoint.precision.settings.precision_options import FOR_FP16, MixedPrecisionOptions

_LOG = logging.getLogger("model_checkpoint.precision")


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceStats:
    """Average and deviation over the window, in milliseconds; everything else over the whole run."""

    step_count: int = 0
    average_step_time_ms: float = 0.0
    last_step_time_ms: float = 0.0
    min_step_time_ms: float = 0.0
    max_step_time_ms: float = 0.0
    std_dev_step_time_ms: float = 0.0
    total_time_seconds: float = 0.0

    @property
    def steps_per_second(self) -> float:
        """Measured steps per second of step time; 0.0 before the first."""
        return self.step_count / self.total_time_seconds if self.total_time_seconds > 0 else 0.0

    def to_tree(self) -> dict[str, Any]:
        """Plain values, one per field."""
        return asdict(self)


class PerformanceMonitor:
    """Measures steps between :meth:`start_step` and :meth:`end_step`.

    Example:
        >>> monitor = PerformanceMonitor()
        >>> monitor.start_step(); monitor.end_step()
        >>> monitor.get_stats().step_count
        1
    """

    def __init__(self, options: MixedPrecisionOptions | None = FOR_FP16) -> None:
        if options is None:
            raise InvalidArgument("performance monitor: options is None. Pass MixedPrecisionOptions().")
        self._interval = options.performance_log_interval
        self._window: deque[float] = deque(maxlen=self._interval)
        self._started: float | None = None
        self._steps = 0
        self._seconds = 0.0
        self._range = (math.inf, 0.0)

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
        self._range = (min(self._range[0], seconds * 1e3), max(self._range[1], seconds * 1e3))
        self._steps += 1
        self._seconds += seconds
        if self._steps % self._interval == 0:
            _LOG.info("%s", self.get_summary())

    def get_stats(self) -> PerformanceStats:
        """A snapshot."""
        fastest, slowest = self._range if self._steps else (0.0, 0.0)
        return PerformanceStats(
            step_count=self._steps,
            average_step_time_ms=statistics.fmean(self._window) if self._window else 0.0,
            last_step_time_ms=self._window[-1] if self._window else 0.0,
            min_step_time_ms=fastest,
            max_step_time_ms=slowest,
            std_dev_step_time_ms=statistics.pstdev(self._window) if self._window else 0.0,
            total_time_seconds=self._seconds,
        )

    def get_summary(self) -> str:
        """One line for a log."""
        stats = self.get_stats()
        return (
            f"{stats.step_count} steps, {stats.steps_per_second:.1f}/s; last {len(self._window)}: "
            f"{stats.average_step_time_ms:.2f} ms +- {stats.std_dev_step_time_ms:.2f} "
            f"({stats.min_step_time_ms:.2f} to {stats.max_step_time_ms:.2f})"
        )

    def restore(self, stats: PerformanceStats) -> None:
        """Continue the totals of an earlier run; the window starts empty."""
        self.reset()
        if stats.step_count:
            self._steps, self._seconds = stats.step_count, stats.total_time_seconds
            self._range = (stats.min_step_time_ms, stats.max_step_time_ms)

    def reset(self) -> None:
        """Forget everything measured."""
        self._window.clear()
        self._started, self._steps, self._seconds, self._range = None, 0, 0.0, (math.inf, 0.0)
