"""Overlap: how much a second thread really gets done beside the first on this machine, now."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from statistics import median

import torch

_ROUNDS = 7
_BURST = 0.004  # seconds; shorter ones end before the system has spread the threads


def measure_overlap() -> float:
    """The share of a worker's time that comes for free: 1.0 with a spare core, 0.0 without.

    torch's own threads count: with all cores at work there is nothing to spare.

    Example:
        >>> 0.0 <= measure_overlap() <= 1.0
        True
    """
    times = _size_burst()
    return typical_overlap([(_timed(1, times), _timed(2, times)) for _ in range(_ROUNDS)])


def typical_overlap(rounds: Sequence[tuple[float, float]]) -> float:
    """What rounds of (seconds of one burst, seconds of two at once) say, in the median.

    On a busy machine some round always looks free, and on a free one some round is disturbed.

    Example:
        >>> typical_overlap([(1.0, 1.1), (1.0, 2.4), (1.0, 1.2)])
        0.8
    """
    return min(max(median(2.0 - both / alone for alone, both in rounds), 0.0), 1.0)


def _size_burst() -> int:
    _burn(1)
    begin = time.perf_counter()
    _burn(4)
    return max(1, round(_BURST * 4 / max(time.perf_counter() - begin, 1e-9)))


def _burn(times: int) -> None:
    square = torch.ones(192, 192)
    for _ in range(times):
        torch.mm(square, square)


def _timed(threads: int, times: int) -> float:
    """Wall seconds until the last of ``threads`` bursts has ended; they start together."""
    gate = threading.Barrier(threads + 1)

    def run() -> None:
        gate.wait()
        _burn(times)

    workers = [threading.Thread(target=run, name="recompute-overlap") for _ in range(threads)]
    for worker in workers:
        worker.start()
    gate.wait()
    begin = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - begin
