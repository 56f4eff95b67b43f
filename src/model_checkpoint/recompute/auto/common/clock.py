"""Clock: the time that a plan is about."""

from __future__ import annotations

import time

import torch


def ticks(*, wall: bool = False) -> float:
    """Seconds: CPU time, as other work on a shared machine must not count; wall time for transfers and devices.

    Example:
        >>> ticks() <= ticks()
        True
    """
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.perf_counter() if wall else time.process_time()
