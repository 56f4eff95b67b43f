"""Offload: write what stages save to disk or host memory, one stage behind forward and one stage ahead of backward.

The tensors of one stage call form a group. It is written by a worker while the next stage runs, and is out of memory
when that stage ends: at most one group waits. When backward comes to a group, the worker begins to read the group
before it: at most one is read ahead. Under a tracker nothing runs in the background and every write comes as late as
it may, so that what is counted is the most that can be held.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from model_checkpoint import forks
from model_checkpoint.recompute.auto.common.peak import active_tracker, tensors_in
from model_checkpoint.recompute.auto.common.statistics import RecomputeStatistics
from model_checkpoint.recompute.auto.saving.offload_groups import OffloadedTensor, OffloadGroup, Task
from model_checkpoint.recompute.auto.saving.saved import Saved
from model_checkpoint.recompute.common.spill_files import SpillFolder


class Offloader:
    """Puts tensors away for stages in the modes ``disk`` and ``host``, with one worker thread.

    Args:
        folder: where a private folder for spill files is made; the system's temporary folder when None.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._given = folder
        self._folder: SpillFolder | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._early: weakref.ref[OffloadGroup] | None = None
        self._lock = forks.lock()
        forks.in_child(self._begin_anew)

    def _begin_anew(self) -> None:
        """In a forked child: the worker stayed behind, and the files are the parent's."""
        self._pool = self._folder = None

    def new_run(self, statistics: RecomputeStatistics, *, background: bool = True) -> OffloadRun:
        """The groups of one run through the stages; without ``background`` all is done when it must be."""
        return OffloadRun(self, statistics, background=background and active_tracker() is None)

    def submit(self, task: Task) -> Future[None]:
        """Have a task run by the worker; after :meth:`close` and in a forked child, by whoever needs it done."""
        with self._lock:
            return self._pool.submit(task) if self._pool is not None else Future()

    def new_group(self, layer: str, mode: str, offload_run: OffloadRun) -> OffloadGroup:
        """A group for one stage call; its folder stays as long as it does."""
        with self._lock:
            if self._folder is None:
                self._folder = SpillFolder(self._given)
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="recompute-offload")
            folder = self._folder
        file = folder.new_file(layer) if mode == "disk" else None
        return OffloadGroup(layer, file, submit=offload_run.submit, statistics=offload_run.statistics)

    def look_ahead(self, reference: weakref.ref[OffloadGroup]) -> None:
        """Begin to read the group that backward needs next; one at most."""
        group = reference()
        if group is not None and group.fetch_early():
            self._early = weakref.ref(group)

    def drain(self) -> None:
        """Let go of what a former backward had read ahead and never asked for."""
        group = self._early() if self._early is not None else None
        self._early = None
        if group is not None:
            group.release()

    def close(self) -> None:
        """Stop the worker; a temporary folder goes with the last graph that needs it."""
        self.drain()
        with self._lock:
            pool, self._pool, self._folder = self._pool, None, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)


class OffloadRun:
    """The groups of one run through the stages, in order."""

    __slots__ = ("_current", "_former", "_last", "_offloader", "statistics", "submit")

    def __init__(self, offloader: Offloader, statistics: RecomputeStatistics, *, background: bool) -> None:
        self._offloader, self.statistics = offloader, statistics
        self.submit: Callable[[Task], Future[None]] = offloader.submit if background else _later
        self._current: OffloadGroup | None = None
        self._former: OffloadGroup | None = None
        self._last: weakref.ref[OffloadGroup] | None = None

    @property
    def group(self) -> OffloadGroup | None:
        """The group of the latest stage, until the stage after it has ended."""
        return self._current or self._former

    @contextmanager
    def stage(
        self, layer: str, mode: str, *, args: tuple[Any, ...], kwargs: dict[str, Any], module: nn.Module
    ) -> Iterator[Callable[[Tensor], Saved]]:
        """Give the function that saves the tensors of one stage call away from memory."""
        group = self._current = self._offloader.new_group(layer, mode, self)
        if self._last is not None:
            before, offloader = self._last, self._offloader
            group.on_read = lambda: offloader.look_ahead(before)
        self._last = weakref.ref(group)
        # what others hold anyway is not worth a write
        held = {t.untyped_storage()._cdata for t in tensors_in([args, kwargs, *module.parameters(), *module.buffers()])}
        numbers: dict[tuple[int, int], int] = {}

        def save(tensor: Tensor) -> Saved:
            storage = tensor.untyped_storage()
            key = int(storage._cdata), tensor._version  # written into since: other bytes
            if key[0] in held:
                return Saved(tensor)
            if key not in numbers:
                numbers[key] = group.put(tensor)
                # the address may be used again once the storage is gone
                weakref.finalize(storage, numbers.pop, key, None)
            return OffloadedTensor(tensor, group, numbers[key])

        yield save

    def settle(self) -> None:
        """A stage has ended: what the stage before it saved must be out of memory."""
        if self._former is not None:
            self._former.settle()
        self._former, self._current = self._current, None

    def finish(self) -> None:
        """The last stage has ended: nothing may wait any more."""
        self.settle()
        self.settle()

    def abandon(self) -> None:
        """The run failed: forget what waits."""
        for group in (self._former, self._current):
            if group is not None:
                group.abandon()
        self._former = self._current = None


def _later(task: Task) -> Future[None]:
    """A task that nobody begins before it must be done."""
    return Future()
