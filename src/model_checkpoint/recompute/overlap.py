"""Overlap: how much a second thread really gets done beside the first on this machine, now."""

from __future__ import annotations

import threading
import time

import torch

_ROUNDS = 10
_BURST = 0.004  # seconds; shorter ones end before the system has spread the threads
_ENOUGH = 0.9


def measure_overlap() -> float:
    """The share of a worker's time that comes for free: 1.0 with a spare core, 0.0 without.

    torch's own threads count: with all cores at work there is nothing to spare.

    Example:
        >>> 0.0 <= measure_overlap() <= 1.0
        True
    """
    times = _size_burst()
    best = 0.0
    for _ in range(_ROUNDS):
        alone = _timed(1, times)
        best = max(best, 2.0 - _timed(2, times) / alone)
        if best >= _ENOUGH:
            break
    return min(max(best, 0.0), 1.0)


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
