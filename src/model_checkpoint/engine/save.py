"""Save: one training state becomes one durable checkpoint. Read ``save`` and you have read the pipeline.

A save has two halves that a background save runs in different threads: ``draft`` plans it to the last byte without
touching a file, ``commit`` stages, writes and publishes it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from model_checkpoint import format as data_format
from model_checkpoint import plan, tree
from model_checkpoint.engine import bandwidth, inflight
from model_checkpoint.engine.info import CheckpointInfo, info_of, path_of
from model_checkpoint.engine.order import Order, place_order
from model_checkpoint.engine.progress import Listen, listening
from model_checkpoint.engine.record import compose, file_name, write_index
from model_checkpoint.engine.recover import recover_once
from model_checkpoint.engine.slabs import FileJob, write_files
from model_checkpoint.engine.verify import is_healthy
from model_checkpoint.engine.workers import cores
from model_checkpoint.errors import CheckpointException, DurabilityUnknown, StepExists
from model_checkpoint.manifest import Manifest, encode
from model_checkpoint.options import CheckpointFormat
from model_checkpoint.state import Flat
from model_checkpoint.storage.locate import Root, open_store
from model_checkpoint.storage.store import Stage, Store

log = logging.getLogger("model_checkpoint.save")

Overwrite = bool | Literal["damaged"]
Move = Callable[[Sequence[FileJob]], None]  # brings every byte of the files to the medium and seals them


def save(
    root: Root,
    state: Any,
    *,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    metadata: Mapping[str, Any] | None = None,
    name: str | None = None,
    overwrite: Overwrite = False,
    format: CheckpointFormat = CheckpointFormat.MULTI_SHARD,  # the name users know
    progress: Listen = None,
) -> CheckpointInfo:
    """Save ``state`` under ``root``; when this returns, the checkpoint survives power loss.

    Args:
        root: A folder or a ``memory://`` URL; made if it does not exist.
        state: Any nesting of dicts, lists, tuples, dataclasses with arrays, scalars, modules, optimizers.
        step: Training step; names the folder ``step-00000100`` and decides which checkpoint is newest.
        metrics: Numbers to choose by later (``load(best="val_loss")``).
        metadata: Plain data to keep beside the state.
        name: Folder name, instead of one made from the step.
        overwrite: Replace a checkpoint of that name; ``"damaged"`` only if it fails verification.
        format: How tensors are spread over files.
        progress: Called with a :class:`~model_checkpoint.events.Progress` as bytes reach the medium; True shows a bar.

    Raises:
        StepExists: the name is taken; nothing was staged.
        DiskFull: known before the first byte is written.
        UnsupportedType: a value of ``state`` has no codec; the message names its path.
        DurabilityUnknown: published, but the last flush failed.

    Example:
        >>> import model_checkpoint as mc
        >>> info = mc.save("memory://doc-save", {"weights": [1.0, 2.0], "epoch": 3}, step=100)
        >>> info.prefix, info.step
        ('step-00000100', 100)
    """
    order = place_order(step=step, name=name, metrics=metrics, metadata=metadata, layout=format)
    store = open_store(root)
    inflight.settle(store.url)
    planned = draft(store, order, state, overwrite=overwrite)
    with listening(progress, "saving") as emit:
        return commit(planned, lambda jobs: write_files(jobs, threads=cores() + 1, emit=emit))


@dataclass(slots=True, eq=False, kw_only=True)
class Draft:
    """A save that is planned to the last byte; no file has been touched."""

    store: Store
    order: Order
    replace: bool
    flat: Flat
    files: Sequence[plan.FilePlan]
    jobs: Sequence[FileJob]

    @property
    def where(self) -> str:
        """Where the checkpoint will lie."""
        return path_of(self.store, self.order.name)

    def let_go(self) -> None:
        """Drop the caller's arrays once their bytes are staged, so that a background save does not keep them alive."""
        for job in self.jobs:
            job.sources = ()
        self.flat = replace(self.flat, leaves=[replace(leaf, source=_Gone(leaf.nbytes)) for leaf in self.flat.leaves])


@dataclass(frozen=True, slots=True)
class _Gone:
    """What is left of an array that is staged."""

    nbytes: int

    def window(self, start: int, stop: int) -> memoryview:
        """Never asked for."""
        raise AssertionError("the bytes were staged and let go of")


def draft(store: Store, order: Order, state: Any, *, overwrite: Overwrite) -> Draft:
    """Plan a save; raise if its name is taken or a value of ``state`` cannot be saved."""
    replacing = _may_replace(store, order.name, overwrite)
    return draft_flat(store, order, tree.flatten(state), replacing=replacing)


def draft_flat(store: Store, order: Order, flat: Flat, *, replacing: bool = False) -> Draft:
    """Plan the save of a state that is taken apart already."""
    if flat.unshared:
        names = ", ".join(flat.unshared[:8])
        log.warning("%s: these views share memory but are stored apart: %s", path_of(store, order.name), names)
    files = plan.assign(flat.leaves, order.layout, order.limits)
    jobs = [_lay_out(order, flat, file) for file in files]
    return Draft(store=store, order=order, replace=replacing, flat=flat, files=files, jobs=jobs)


def commit(planned: Draft, move: Move) -> CheckpointInfo:
    """Carry out a planned save; when this returns, the checkpoint survives power loss."""
    started = time.monotonic()
    log.info("%s: saving", planned.where)
    recover_once(planned.store)
    try:
        manifest = _write(planned, move)
    except CheckpointException as error:
        log.error("%s: save failed: %s", planned.where, error)
        raise
    info, seconds = info_of(planned.store, manifest), time.monotonic() - started
    bandwidth.note(planned.store.url, info.size_bytes, seconds)
    log.info("%s: saved %d bytes in %.3f s", planned.where, info.size_bytes, seconds)
    return info


def _may_replace(store: Store, name: str, overwrite: Overwrite) -> bool:
    """Decide before a byte is staged whether the name is free or may be replaced."""
    if name not in store.names():
        return False
    if overwrite is True or (overwrite == "damaged" and not is_healthy(store, name)):
        return True
    cure = "it is healthy, so it is kept" if overwrite == "damaged" else "pass overwrite=True to replace it"
    raise StepExists(
        f"{path_of(store, name)}: already committed; {cure}, or choose another step. Nothing was written.",
        path_of(store, name),
    )


def _write(planned: Draft, move: Move) -> Manifest:
    """Stage every file, move its bytes, then publish with the manifest last."""
    store, order = planned.store, planned.order
    obsolete = tuple(store.files(order.name)) if planned.replace else ()
    stage = store.stage(order.name, order.attempt)
    try:
        _open_files(stage, planned)
        move(planned.jobs)
        manifest = compose(order, planned.flat, planned.files, planned.jobs)
        if order.layout is CheckpointFormat.CONSOLIDATED:
            manifest = msgspec.structs.replace(manifest, extras=(write_index(stage, manifest),))
        kept = {record.name for record in (*manifest.files, *manifest.extras)} | {"manifest.json"}
        stage.publish(encode(manifest), replace=planned.replace, obsolete=[f for f in obsolete if f not in kept])
    except DurabilityUnknown:
        raise  # published: the folder stays, whatever the last flush said
    except BaseException:
        with suppress(CheckpointException):  # the first error is the one to tell; recovery sweeps what is left
            stage.abort()
        raise
    return manifest


def _open_files(stage: Stage, planned: Draft) -> None:
    """Reserve the room of every file, so that a full disk is known before the first byte."""
    for i, (file, job) in enumerate(zip(planned.files, planned.jobs, strict=True)):
        job.writer = stage.create(file_name(file, i, planned.order.attempt), job.layout.size)


def _lay_out(order: Order, flat: Flat, file: plan.FilePlan) -> FileJob:
    """Decide where each tensor of one file lies."""
    leaves = [flat.leaves[j] for j in file.leaves]
    tensors = [
        data_format.Tensor(
            name,
            leaf.stored,
            leaf.shape if leaf.stored_shape is None else leaf.stored_shape,
            leaf.nbytes,
            leaf.alignment,
        )
        for name, leaf in zip(file.names, leaves, strict=True)
    ]
    metadata = {"format": "pt", "model_checkpoint": order.attempt}
    layout = data_format.lay_out(tensors, metadata=metadata, chunk_bytes=order.limits.chunk_bytes)
    return FileJob(layout, [leaves[j].source for j in layout.order])
