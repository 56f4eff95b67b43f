"""Save async: copy a state into staging memory, return, and make the checkpoint durable meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.background.lazy import Lazy
from model_checkpoint.engine.background.planned_save import PlannedSave, SaveAlone, SaveOnRanks, begin_either, excused
from model_checkpoint.engine.background.staging_pool import POOL
from model_checkpoint.engine.background.staging_queue import StagingQueue, fit_buffers, plan_budget
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.option_checks import require, require_bytes
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.common.workers import cores, yield_to_others
from model_checkpoint.engine.jobs import followups, inflight
from model_checkpoint.engine.jobs.inflight import Busy
from model_checkpoint.engine.jobs.job import SaveJob
from model_checkpoint.engine.jobs.running_save import RunningSave, SaveState
from model_checkpoint.engine.writing.rank_saves.save_ranks import RankSave
from model_checkpoint.engine.writing.request import SaveRequest, refuse_own_mirror, request_save
from model_checkpoint.engine.writing.save import Overwrite, Parity, rank_request
from model_checkpoint.engine.writing.slabs import SLAB_POOL, FileJob, plan_runs
from model_checkpoint.errors import OptionInvalid, StateChanged
from model_checkpoint.events import Emit
from model_checkpoint.options import CheckpointFormat, CompressionLevel
from model_checkpoint.storage.locate import Root, open_store

if TYPE_CHECKING:
    from model_checkpoint.tree.flattening.torch_guards import Guard

_COPY_THREADS = 4  # more do not copy faster: memory is the limit
_WRITE_THREADS = 4


def save_async(
    root: Root,
    state: Any,
    *,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    metadata: Mapping[str, Any] | None = None,
    name: str | None = None,
    id: str | None = None,  # the name users know
    overwrite: Overwrite = False,
    format: CheckpointFormat = CheckpointFormat.MULTI_SHARD,  # the name users know
    compression: CompressionLevel = CompressionLevel.NONE,
    incremental: bool = False,
    parity: Parity | None = None,
    mirror: Root | None = None,
    busy: Busy = "wait",
    memory_limit: int | None = None,
    lazy: bool = False,
    guard: Sequence[object] = (),
    progress: Listen = None,
    coordinator: Coordinator | None = None,
) -> SaveJob:
    """Copy ``state`` and return; threads of low priority hash, write and publish it.

    A failure in the background is never lost: the handle raises it, or the next save of this root, or
    :func:`finish_saves`; if nobody asks, the process ends with exit code 1. At the end of the program saves under way
    are finished first.

    Args:
        root: See :func:`save`, like all that is not named here.
        state: May change as soon as this returns.
        step: Training step.
        metrics: Numbers to choose by later.
        metadata: Plain data to keep beside the state.
        name: Folder name, instead of one made from the step.
        id: The id of the checkpoint, instead of a random one.
        overwrite: Replace a checkpoint of that name; ``"damaged"`` is verified before this returns.
        format: How tensors are spread over files.
        compression: How hard to compress the files; in the background. Not with ``lazy``.
        incremental: Repeat unchanged files by link; what changed is found out before this returns.
        parity: Make parity files once it is durable; ``job.wait_protected()`` waits for them.
        mirror: A second root to copy it to once it is durable.
        busy: What to do while an earlier save of this root is in flight: ``"wait"`` for it, ``"skip"`` this one, or
            copy now and ``"queue"`` the writing. Counted in ``job.counts``.
        memory_limit: Most bytes of staging memory this process may hold, with what this save compresses and uploads in;
            default: half of what is free. With less than the state needs, the call waits for parts to be written.
        lazy: Copy parameters and optimizer state while the next forward and backward run; the next ``step()`` of
            each guard waits for that copy. All else (buffers, learning rates, random states, ...) is copied at once.
            If a guarded tensor is written to by anything but a guard's step, the save fails and names it. Writes no
            version counter shows (``.data``, NumPy, raw pointers, CUDA graphs) must come after ``job.wait_staged()``.
        guard: Optimizers whose step may change the state, besides those in it; without any the save is eager.
        progress: See :func:`save`; called from background threads.
        coordinator: The ranks that save together (see :func:`save`). They agree before this returns, and each copies
            what it will write. What ``busy`` comes to, rank 0 decides for all; if the job of one is cancelled or fails,
            so do those of all.

    Example:
        >>> job = save_async("memory://doc-async", {"epoch": 3}, step=1)
        >>> job.result().step, job.state.value
        (1, 'durable')
    """
    started = time.monotonic()

    def request() -> SaveRequest:
        require(overwrite=overwrite, lazy=lazy, progress=progress)
        order = request_save(
            step=step,
            name=name,
            metrics=metrics,
            metadata=metadata,
            layout=format,
            compression=compression,
            incremental=incremental,
            id=id,
            parity=parity,
            mirror=mirror,
        )
        _require_eager(order, lazy=lazy)
        return order

    store = open_store(root)

    def on_ranks(ranks: Coordinator, entered: SaveAlone | None = None) -> SaveOnRanks:
        return SaveOnRanks(RankSave(store, rank_request(store, request, overwrite), ranks), entered=entered)

    many = coordinator if coordinator is not None and coordinator.world_size > 1 else None
    with excused(None if many is None else lambda: on_ranks(many)):
        limit = require_bytes("memory_limit", memory_limit)
        order = request()
        store = fit_buffers(store, limit)
        refuse_own_mirror(store, order)
    followups.warn_unseen(store.url)
    alone = SaveAlone(store, order, overwrite)
    planned_save: PlannedSave = alone if many is None else on_ranks(many)
    mesh_of_one = None if coordinator is None else lambda: on_ranks(coordinator, alone)
    worker = None
    lane = coordinator.rank if coordinator is not None else 0
    job = inflight.new_job(store.url, path_of(store, order.name), lane=lane)
    job.attend = getattr(coordinator, "attend", None)
    try:
        planned_save, ahead = begin_either(planned_save, mesh_of_one, job, state, busy)
        if job.done():
            return SaveJob(job)
        planned_save.planned.deciding = getattr(coordinator, "deciding", None)
        guarding = planned_save.guard(guard) if lazy else None
        worker = _Worker(job, planned_save, limit=limit, ahead=ahead, guard=guarding, progress=progress)
        if ahead is not None:
            ahead.copied()  # its copy has the first claim on memory
        worker.stage()
    except BaseException as error:
        if worker is None or not worker.begun:  # from there on the worker ends the job itself
            job.seen = True  # raised right here
            job.fail(error)
            planned_save.abandon(error)
        raise
    job.stall += time.monotonic() - started
    if inflight.is_ending():
        job.result()  # the interpreter waits for this thread, but no longer for those that write
    return SaveJob(job)


def _require_eager(order: SaveRequest, *, lazy: bool) -> None:
    if lazy and order.compression is not CompressionLevel.NONE:
        raise OptionInvalid(
            f"lazy=True copies chunks out of order, but compression={order.compression.value!r} writes them in order. "
            "Leave one of them out. Nothing was done."
        )


def finish_saves(root: Root | None = None) -> None:
    """Wait for the background saves of ``root`` (of all without one); raise a failure nobody has learnt of.

    Waits for parity files and mirrors of saves, too. Also gives the idle memory of saves back to the system.

    Example:
        >>> job = save_async("memory://doc-finish", {"epoch": 3}, step=1)
        >>> finish_saves("memory://doc-finish")
        >>> job.done()
        True
    """
    url = None if root is None else open_store(root).url
    try:
        try:
            inflight.raise_unseen(url)
        finally:
            followups.finish(url)
    finally:
        POOL.release()
        SLAB_POOL.release()


class _Worker:
    """Brings one planned save to its end."""

    def __init__(
        self,
        job: RunningSave,
        planned_save: PlannedSave,
        *,
        limit: int | None,
        ahead: RunningSave | None,
        guard: Guard | None,
        progress: Listen,
    ) -> None:
        planned = planned_save.planned
        self._job, self._save, self._planned, self._ahead, self._progress = job, planned_save, planned, ahead, progress
        self.begun = False
        most = min(cores(), _WRITE_THREADS)
        self._budget = plan_budget(planned, limit, threads=most)
        runs = plan_runs(planned.writing, self._budget.run_bytes)
        self._guard = guard
        self._lazy = None if guard is None else Lazy(planned, guard, runs)
        ordered = runs if self._lazy is None else [*self._lazy.eager, *self._lazy.later]
        self._at_call = len(runs) if self._lazy is None else len(self._lazy.eager)
        self._conveyor = StagingQueue(ordered, limit=self._budget.limit)
        self._thread = threading.Thread(target=self._run, name=f"mckpt-save-{planned.order.name}", daemon=True)
        job.on_cancel(self._conveyor.stop)

    def stage(self) -> None:
        """Copy the state, or what is not guarded of it.

        Writing begins when that is over, or at once where memory has no room for all of it.
        """
        try:
            self.begun = True
            if self._conveyor.waves:
                self._thread.start()
            self._conveyor.fill(self._at_call, threads=min(cores(), _COPY_THREADS))
            self._hold_steps()
            if self._lazy is None and not self._conveyor.waves:
                self._thread.start()
        except BaseException as error:  # noqa: BLE001  # raised again there, unless it is the handle's to tell
            self._interrupted(error)

    def _hold_steps(self) -> None:
        """Leave the rest to a thread, and let no guard step before it is done."""
        if self._guard is None or self._lazy is None:
            self._job.staged()
            return
        self._job.on_staged(self._lazy.settle)
        self._guard.hold(self._before_step)
        threading.Thread(target=self._copy_rest, name=f"mckpt-copy-{self._planned.order.name}", daemon=True).start()

    def _before_step(self) -> None:
        """Wait in the caller's thread until the copy is done; what is wrong with it is the handle's to tell."""
        started = time.monotonic()
        if self._job.copied() and self._lazy is not None:
            try:
                self._lazy.settle()
            except StateChanged as error:
                self._conveyor.stop(error)
        self._job.stall += time.monotonic() - started

    def _copy_rest(self) -> None:
        if self._lazy is None:
            raise AssertionError("only a lazy save has a rest")
        try:
            if not self._conveyor.waves:
                self._thread.start()  # here, because starting a thread can take longer than the rest of the call
            self._conveyor.fill(len(self._conveyor.runs), threads=1, check=self._lazy.check)
        except BaseException as error:  # noqa: BLE001  # the writing thread meets it on the conveyor and tells
            self._conveyor.stop(error)
            self._job.copy_failed(error)
            if self._thread.ident is None:
                self._save.abandon(error)
                self._job.fail(error)
        else:
            self._job.staged()

    def _interrupted(self, error: BaseException) -> None:
        """Raise the copy's own errors here; a cancel and the failures of the background belong to the handle."""
        own = not self._conveyor.stopped
        self._job.seen = own
        self._conveyor.stop(error)
        self._job.copy_failed(error)  # the writing thread may have written all, and wait to hear that all is copied
        if self._thread.ident is not None:
            self._thread.join()
        else:
            self._save.abandon(error)
            self._job.fail(error)
        if own:
            raise error

    def _run(self) -> None:
        try:
            yield_to_others()
            if self._ahead is not None:
                self._ahead.over()
            self._conveyor.check()
            with listening(self._progress, "saving") as emit:
                info, self._job.follow_up = self._save.finish(lambda jobs: self._move(jobs, self._save.heard(emit)))
        except BaseException as error:  # noqa: BLE001  # kept for the handle, the next save or the exit
            self._conveyor.stop(error)
            self._save.abandon(error)
            self._job.fail(error)
        else:
            self._job.succeed(info)

    def _move(self, jobs: Sequence[FileJob], emit: Emit) -> None:
        """Write what was copied; what follows is the commit, which nobody can cancel."""
        if self._job.state is not SaveState.STAGING:
            self._planned.let_go()
        meter = Meter("save", sum(job.layout.size for job in jobs), emit)
        self._conveyor.drain(meter, threads=self._budget.threads)
        self._job.copied()
        if self._lazy is not None:
            self._lazy.settle()
        self._job.begin_commit()
