"""Staging queue: carry filled slabs from the threads that copy to the threads that write.

Runs are filled and drained in one order, and a slab is taken before its run, so whoever holds memory works on the
earliest run left: with room for a single slab the conveyor still moves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from model_checkpoint.engine.background.staging_pool import POOL
from model_checkpoint.engine.common.aligned_memory import PAGE
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.pages import Bytes
from model_checkpoint.engine.common.workers import Pace, run_all
from model_checkpoint.engine.writing.compress import longest_chunk, scratch_bytes
from model_checkpoint.engine.writing.save_plan import SavePlan
from model_checkpoint.engine.writing.slabs import ChunkRun, fill, finish_run, slab_bytes
from model_checkpoint.errors import MemoryRefused
from model_checkpoint.options import MIB
from model_checkpoint.performance.available_memory import available_bytes
from model_checkpoint.performance.copying import stream_copy
from model_checkpoint.storage.contract.store import Buffering, Store

_LEAST_SLABS = 4  # so many slabs at least, where memory is short: copying and writing shall overlap
_SHARE = 4  # one in so many bytes of the ceiling may be a file on its way to an object store
_WINDOW = MIB
_RUN_BYTES = 13 * MIB  # three chunks, which are hashed side by side, and small ones beside them

Check = Callable[[ChunkRun], None]


def staging_limit(wanted: int | None) -> int | None:
    """Bytes of staging memory this process may hold: the caller's word, else half of what is still free."""
    if wanted is not None:
        return wanted
    room = available_bytes()
    return None if room is None else POOL.total + room // 2


@dataclass(frozen=True, slots=True)
class Budget:
    """What a save may take: staging memory (None: no limit is known), runs of which length, and how many writers."""

    limit: int | None
    run_bytes: int
    threads: int


def fit_buffers(store: Store, wanted: int | None) -> Store:
    """The store, with upload buffers (if it has any) that leave most of the ceiling to slabs."""
    limit = staging_limit(wanted) if isinstance(store, Buffering) else None
    return store.within(limit // _SHARE) if limit is not None and isinstance(store, Buffering) else store


def plan_budget(planned: SavePlan, wanted: int | None, *, threads: int) -> Budget:
    """Share the ceiling between slabs, of which several shall fit, and the other memory of at most ``threads``.

    That is what compressing takes, and what a store keeps of a file on its way. Raises MemoryRefused if a ``wanted``
    ceiling has no room for one slab and one thread.
    """
    jobs, where = planned.writing, planned.where
    longest = longest_chunk(jobs)
    scratch = scratch_bytes(jobs) + (planned.store.buffer_bytes if isinstance(planned.store, Buffering) else 0)
    total, least = sum(job.layout.size for job in jobs), (longest // PAGE + 2) * PAGE
    if wanted is not None and least + scratch > wanted:
        raise MemoryRefused(
            f"{where}: memory_limit is {wanted} bytes, but its longest chunk needs {least + scratch}. Raise the limit "
            "to at least that, or use the blocking save.",
            where,
        )
    limit = staging_limit(wanted)
    if limit is None:
        return Budget(None, _RUN_BYTES, threads)
    while threads > 1 and threads * (least + scratch) > limit:
        threads -= 1
    limit = max(0, limit - threads * scratch)
    if total + 2 * PAGE <= limit:
        return Budget(limit, _RUN_BYTES, threads)
    return Budget(limit, max(longest, min(_RUN_BYTES, limit // _LEAST_SLABS - 2 * PAGE)), threads)


def _fill(run: ChunkRun, slab: Bytes) -> None:
    """Copy a run, little at a time: arrays that do not lie in order in host memory are copied twice.

    Past the caches, for training waits for the copy, and nobody looks at it before they hold something else.
    """
    for _, start, data in run.rooms(slab):
        for offset in range(0, len(data), _WINDOW):
            fill(run.job, start + offset, data[offset : offset + _WINDOW], copy=stream_copy)


class StagingQueue:
    """The runs of one save on their way through staging memory."""

    def __init__(self, runs: Sequence[ChunkRun], *, limit: int | None) -> None:
        self.runs = runs
        self._room = slab_bytes(runs)
        total = self._room * len(runs)
        self._limit = max(self._room, total + POOL.total if limit is None else limit)
        self.waves = total > self._limit  # whether the copy cannot end before writing begins
        self._filled: dict[int, Bytes] = {}
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        self._next = 0
        self._error: BaseException | None = None

    def fill(self, stop: int, *, threads: int, check: Check | None = None) -> None:
        """Copy the runs up to number ``stop`` into slabs; ``check`` sees each after its copy."""

        def worker(items: Iterator[int]) -> None:
            for _ in items:
                index, slab = self._take()
                try:
                    _fill(self.runs[index], slab)
                    if check is not None:
                        check(self.runs[index])
                except BaseException:
                    POOL.give(slab)
                    raise
                self._hand_over(index, slab)

        items = range(self._next, stop)
        run_all(worker, items, pace=Pace(most=threads))

    def _take(self) -> tuple[int, Bytes]:
        with self._turn:
            slab = POOL.take(self._room, limit=self._limit, stopped=lambda: self.stopped, returning=self.waves)
            if slab is None:
                raise self._error or AssertionError("only a stopped conveyor gets no slab")
            self._next += 1
            return self._next - 1, slab

    def _hand_over(self, index: int, slab: Bytes) -> None:
        with self._changed:
            if self._error is None:
                self._filled[index] = slab
                self._changed.notify_all()
                return
        POOL.give(slab)
        self.check()

    def drain(self, meter: Meter, *, threads: int) -> None:
        """Fingerprint and write every run as it comes, and seal the files."""

        def worker(items: Iterator[int]) -> None:
            for index in items:
                run, slab = self.runs[index], self._receive(index)
                try:
                    finish_run(run, slab)
                    meter.add(run.end - run.begin)
                except BaseException as error:
                    self.stop(error)  # the others may be waiting for runs that will never come
                    raise
                finally:
                    POOL.give(slab)

        run_all(worker, range(len(self.runs)), pace=Pace(most=threads))

    def _receive(self, index: int) -> Bytes:
        with self._changed:
            while index not in self._filled:
                self.check()
                self._changed.wait()
            return self._filled.pop(index)

    def stop(self, error: BaseException) -> None:
        """Stop everybody, the first error being the one to tell, and give the memory back."""
        with self._changed:
            self._error = self._error or error
            slabs = list(self._filled.values())
            self._filled.clear()
            self._changed.notify_all()
        for slab in slabs:
            POOL.give(slab)
        for compressor in {id(run.job): run.job.compressor for run in self.runs}.values():
            if compressor is not None:
                compressor.give_up()

    @property
    def stopped(self) -> bool:
        """Whether somebody stopped it."""
        return self._error is not None

    def check(self) -> None:
        """Raise the error it was stopped with, if it was."""
        if self._error is not None:
            raise self._error
