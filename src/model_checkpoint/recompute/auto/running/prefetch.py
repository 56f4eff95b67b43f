"""Prefetch: run the region that backward needs next on a worker thread.

At most one region ahead, so memory grows by one region. Regions that draw random numbers (or whose inputs do when they
are made again), talk to other processes or share a module stay with backward: generators and modules belong to the
whole process.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch

from model_checkpoint import forks
from model_checkpoint.recompute.auto.common.peak import active_tracker
from model_checkpoint.recompute.auto.common.statistics import RecomputeStatistics

_log = logging.getLogger("model_checkpoint.recompute")


class Pending:
    """A region under way on the worker for one backward pass."""

    __slots__ = ("future", "owner", "statistics", "task")

    def __init__(self, future: Future[bool], task: int, statistics: RecomputeStatistics) -> None:
        self.future, self.task, self.statistics = future, task, statistics
        self.owner = os.getpid()  # the worker is a thread of this process

    def collect(self, layer: str, task: int) -> bool:
        """Wait for the worker; False means that backward must run the region itself."""
        if os.getpid() != self.owner or self.future.cancel():
            return False
        start = time.perf_counter()
        done = self.future.result() and task == self.task
        if done:
            self.statistics.prefetched(layer, time.perf_counter() - start)
        return done


class Prefetchable(Protocol):
    """A region that can be run before backward comes to it."""

    pending: Pending | None

    @property
    def name(self) -> str:
        """Its layers, for messages."""
        ...

    @property
    def may_run_ahead(self) -> bool:
        """Whether that is of use, and safe beside backward."""
        ...

    def recompute(self, task: int) -> None:
        """Run it for one backward pass."""
        ...


class Prefetcher:
    """One worker thread that runs regions ahead of backward; it starts with the first region."""

    def __init__(self, statistics: RecomputeStatistics) -> None:
        self._statistics = statistics
        self.overlap = 0
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[bool] | None = None
        self._lock = forks.lock()
        forks.in_child(self._begin_anew)

    def start(self, frame: Prefetchable | None, task: int) -> None:
        """Begin to run ``frame`` for backward pass ``task``, if that is safe."""
        if frame is None or frame.pending is not None or not frame.may_run_ahead:
            return
        tracker = active_tracker()
        if tracker is not None:
            # the tracker sees one thread: run here and now, with both regions in memory at once
            future: Future[bool] = Future()
            future.set_running_or_notify_cancel()
            before, tracker.peak = tracker.peak, tracker.live
            future.set_result(_run(weakref.ref(frame), task, torch.get_num_threads()))
            # on a thread of its own, what a run needs and frees again comes on top of backward
            self.overlap = max(self.overlap, tracker.peak - tracker.live)
            tracker.peak = max(before, tracker.peak)
        else:
            future = self._workers().submit(_run, weakref.ref(frame), task, torch.get_num_threads())
        self._running = future
        frame.pending = Pending(future, task, self._statistics)

    def drain(self) -> None:
        """Wait for what still runs: a new forward pass must find the modules as they are."""
        running, self._running = self._running, None
        if running is not None and not running.cancel():
            running.result()

    def _begin_anew(self) -> None:
        """A forked child has no worker, and must not wait for what its parent's had begun."""
        self._pool = self._running = None

    def _workers(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="recompute-prefetch")
            return self._pool

    def close(self) -> None:
        """Stop the worker; what waits is cancelled."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
                self._pool = None


def _run(reference: weakref.ref[Prefetchable], task: int, threads: int) -> bool:
    """Run a region unless its graph is gone; an error is left to backward, which runs it again and raises there."""
    frame = reference()
    if frame is None:
        return False
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    try:
        frame.recompute(task)
    except Exception as error:  # noqa: BLE001 - worker thread: backward runs the region again and reports
        _log.debug("prefetch of %s failed, backward runs it: %s", frame.name, error)
        return False
    return True
