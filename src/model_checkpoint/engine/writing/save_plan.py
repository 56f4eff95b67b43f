"""Save plan: a save planned to the last byte: which files, what in each, where every tensor lies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from model_checkpoint import format as data_format
from model_checkpoint import plan
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.root.recover import recover_once
from model_checkpoint.engine.writing.compress import FileCompressor, WorkerTools
from model_checkpoint.engine.writing.incremental import LinkedFile, Parent, link_file, plan_files
from model_checkpoint.engine.writing.manifest_build import compose, file_name
from model_checkpoint.engine.writing.request import SaveRequest
from model_checkpoint.engine.writing.slabs import FileJob
from model_checkpoint.events import Emit, ignore
from model_checkpoint.manifest import Manifest
from model_checkpoint.name_lists import some_of
from model_checkpoint.options import CompressionLevel, ReaderLimits
from model_checkpoint.performance.gc_pause import collector_paused
from model_checkpoint.state import Flat, Leaf, Source
from model_checkpoint.storage.contract.shared import SharedStore
from model_checkpoint.storage.contract.store import Attempt, Store

log = logging.getLogger("model_checkpoint.save")

_PARITY_FILES = 8  # at least so many where there are tensors for it: a sum then costs an eighth


@dataclass(slots=True, eq=False, kw_only=True)
class SavePlan:
    """A planned save; nothing is written yet, though files that are repeated may be linked already."""

    store: Store
    order: SaveRequest
    replace: bool
    flat: Flat
    files: Sequence[plan.FilePlan]
    jobs: Sequence[FileJob | LinkedFile]
    parent: Parent | None = None
    stage: Attempt | None = None  # open already, if something was linked
    deciding: Callable[[Callable[[], bool]], None] | None = None  # told before it is published how it is ended for good

    def decide(self) -> None:
        """Say that the save is about to be published; raises if nobody waits for it any more."""
        if self.deciding is not None and isinstance(self.store, SharedStore):
            store, order = self.store, self.order
            self.deciding(lambda: store.settle(order.name, order.attempt))

    @property
    def where(self) -> str:
        """Where the checkpoint will lie."""
        return path_of(self.store, self.order.name)

    @property
    def writing(self) -> list[FileJob]:
        """The files that are not repeated."""
        return [job for job in self.jobs if isinstance(job, FileJob)]

    def named_jobs(self) -> Iterator[tuple[str, FileJob]]:
        """Those with their names."""
        for i, (file, job) in enumerate(zip(self.files, self.jobs, strict=True)):
            if isinstance(job, FileJob):
                yield file_name(file, i, self.order), job

    def manifest(self, stage: Attempt, *, created: str) -> Manifest:
        """The record of what was written."""
        stamps = stage.stamps()
        return compose(self.order, self.flat, self.files, self.jobs, stamps=stamps, parent=self.parent, created=created)

    def take_stage(self) -> Attempt:
        """Hand the stage, opened if need be, to whoever carries out the save."""
        stage, self.stage = self.stage, None
        return stage if stage is not None else self.store.stage(self.order.name, self.order.attempt)

    def abandon(self) -> None:
        """Remove what was linked, if nobody has taken the stage."""
        if self.stage is not None:
            self.take_stage().abort()

    def let_go(self) -> None:
        """Drop the caller's arrays once their bytes are staged, so that a background save does not keep them alive."""
        for job in self.writing:
            job.sources = ()
        self.flat = msgspec.structs.replace(self.flat, leaves=_without_bytes(self.flat.leaves))


@dataclass(frozen=True, slots=True)
class _Gone:
    """What is left of an array that is staged."""

    nbytes: int

    def window(self, start: int, stop: int) -> memoryview:
        """Never asked for."""
        raise AssertionError("the bytes were staged and let go of")


def _without_bytes(leaves: Sequence[Leaf]) -> list[Leaf]:
    return [leaf._replace(source=_Gone(leaf.nbytes)) for leaf in leaves]


def plan_flat(
    store: Store,
    order: SaveRequest,
    flat: Flat,
    *,
    replacing: bool = False,
    parent: Parent | None = None,
    stage: Attempt | None = None,
    emit: Emit = ignore,
) -> SavePlan:
    """Plan the save of a state that is taken apart already; into ``stage``, if one is open."""
    if flat.unshared:
        names = some_of(flat.unshared)
        log.warning("%s: these views share memory but are stored apart: %s", path_of(store, order.name), names)
    order = _spread(order, flat)
    files = plan_files(store, order, flat, parent, emit=emit)
    planned = SavePlan(store=store, order=order, replace=replacing, flat=flat, files=files, jobs=(), parent=parent)
    planned.stage = stage
    if stage is None and any(file.repeats is not None for file in files):
        recover_once(store)
        planned.stage = store.stage(order.name, order.attempt)
    try:
        planned.jobs = _jobs(planned)
    except BaseException:
        planned.abandon()
        raise
    return planned


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """How the leaves of one state lie in files; good for any other whose leaves are like them, but for their bytes."""

    leaves: Sequence[Leaf]  # without their bytes
    files: Sequence[plan.FilePlan]
    layouts: Sequence[data_format.FileLayout]
    attempt: str  # whose name is in the headers

    @classmethod
    def of(cls, planned: SavePlan) -> KeptFiles | None:
        """What is to be kept of a plan; None if it is good for one state only."""
        if not cls.fits(planned.order):
            return None
        layouts = [job.layout for job in planned.writing]
        return cls(_without_bytes(planned.flat.leaves), planned.files, layouts, planned.order.attempt)

    @staticmethod
    def fits(order: SaveRequest) -> bool:
        """Whether a save of this kind lies in files in the same way each time."""
        return not order.incremental and order.compression is CompressionLevel.NONE


def repeat_plan(store: Store, order: SaveRequest, sources: Sequence[Source], kept: KeptFiles) -> SavePlan:
    """Plan the save of a state like one planned before, whose bytes are elsewhere."""
    before, now = kept.attempt.encode(), order.attempt.encode()
    jobs = []
    for file, layout in zip(kept.files, kept.layouts, strict=True):
        renamed = msgspec.structs.replace(layout, header=layout.header.replace(before, now, 1))  # ids have one length
        jobs.append(FileJob(renamed, [sources[file.leaves[j]] for j in layout.order]))
    flat = Flat(None, kept.leaves)
    return SavePlan(store=store, order=order, replace=False, flat=flat, files=kept.files, jobs=jobs)


def _spread(order: SaveRequest, flat: Flat) -> SaveRequest:
    """Cut files so that parity has several to make up for: each sum is as long as the longest."""
    if not order.parity:
        return order
    share = -(-sum(leaf.nbytes for leaf in flat.leaves) // _PARITY_FILES)
    file_bytes = min(order.limits.file_bytes, max(order.limits.chunk_bytes, share))
    return replace(order, limits=replace(order.limits, file_bytes=file_bytes))


def _jobs(planned: SavePlan) -> list[FileJob | LinkedFile]:
    """Link what is repeated, which may fail, and lay out the rest, while its bytes are at hand."""
    order, jobs = planned.order, []
    tools = None if order.compression is CompressionLevel.NONE else WorkerTools(order.compression)
    for i, file in enumerate(planned.files):
        linked = None
        if planned.stage is not None:
            linked = link_file(planned.stage, file, file_name(file, i, order), planned.parent)
        jobs.append(linked or _lay_out(order, planned.flat, file, tools))
    return jobs


@collector_paused()
def _lay_out(order: SaveRequest, flat: Flat, file: plan.FilePlan, tools: WorkerTools | None) -> FileJob:
    """Decide where each tensor of one file lies."""
    leaves = [flat.leaves[j] for j in file.leaves]
    tensors = [
        data_format.Tensor(
            label,
            leaf.stored,
            leaf.shape if leaf.stored_shape is None else leaf.stored_shape,
            leaf.nbytes,
            leaf.alignment,
        )
        for label, leaf in zip(file.names, leaves, strict=True)
    ]
    metadata = {"format": "pt", "model_checkpoint": order.attempt}
    layout = data_format.lay_out(tensors, metadata=metadata, chunk_bytes=order.limits.chunk_bytes)
    compressor = None
    if tools is not None and file.part != "model":
        layout = data_format.reserve_frames(layout, metadata=metadata, limits=ReaderLimits())
        compressor = FileCompressor(layout, tools, metadata)
    return FileJob(layout, [leaves[j].source for j in layout.order], compressor=compressor)
