"""Save: one training state becomes one durable checkpoint. Read ``save`` and you have read the pipeline."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from model_checkpoint import format as data_format
from model_checkpoint import plan, tree
from model_checkpoint.engine.incremental import LinkedFile, Parent, find_parent, link_file, plan_files
from model_checkpoint.engine.info import CheckpointInfo, info_of, path_of
from model_checkpoint.engine.order import Order, place_order
from model_checkpoint.engine.record import compose, file_name, write_index
from model_checkpoint.engine.recover import recover_once
from model_checkpoint.engine.slabs import FileJob, write_files
from model_checkpoint.engine.squeeze import FilePress, Tools
from model_checkpoint.engine.verify import is_healthy
from model_checkpoint.engine.workers import cores
from model_checkpoint.errors import CheckpointException, DurabilityUnknown, StepExists
from model_checkpoint.events import Emit, ignore
from model_checkpoint.manifest import Manifest, encode
from model_checkpoint.options import CheckpointFormat, CompressionLevel, ReaderLimits
from model_checkpoint.state import Flat
from model_checkpoint.storage.locate import Root, open_store
from model_checkpoint.storage.store import Stage, Store

log = logging.getLogger("model_checkpoint.save")

Overwrite = bool | Literal["damaged"]


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
    compression: CompressionLevel = CompressionLevel.NONE,
    incremental: bool = False,
    progress: Emit | None = None,
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
        compression: How hard to squeeze the files, without loss; a consolidated model stays as other tools read it.
        incremental: Repeat files of the newest checkpoint that did not change, by link; each stays whole by itself, but
            what is shared is one copy.
        progress: Called with a :class:`~model_checkpoint.events.Progress` as bytes reach the medium.

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
    started = time.monotonic()
    order = place_order(
        step=step,
        name=name,
        metrics=metrics,
        metadata=metadata,
        layout=format,
        compression=compression,
        incremental=incremental,
    )
    store = open_store(root)
    recover_once(store)
    where = path_of(store, order.name)
    replace = _may_replace(store, order.name, overwrite)
    log.info("%s: saving", where)
    flat = tree.flatten(state)
    if flat.unshared:
        log.warning("%s: these views share memory but are stored apart: %s", where, ", ".join(flat.unshared[:8]))
    # whoever replaces a damaged checkpoint must not link to its files, nor to others that share them
    parent = find_parent(store) if incremental and not (replace and overwrite == "damaged") else None
    try:
        manifest = _write(store, order, flat, parent=parent, replace=replace, emit=progress or ignore)
    except CheckpointException as error:
        log.error("%s: save failed: %s", where, error)
        raise
    info = info_of(store, manifest)
    log.info("%s: saved %d bytes in %.3f s", where, info.size_bytes, time.monotonic() - started)
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


def _write(store: Store, order: Order, flat: Flat, *, parent: Parent | None, replace: bool, emit: Emit) -> Manifest:
    """Stage every file, hash and write it, then publish with the manifest last."""
    obsolete = tuple(store.files(order.name)) if replace else ()
    stage = store.stage(order.name, order.attempt)
    try:
        files = plan_files(store, order, flat, parent)
        jobs = _stage_files(stage, order, flat, files, parent)
        write_files([job for job in jobs if isinstance(job, FileJob)], threads=cores() + 1, emit=emit)
        manifest = compose(order, flat, files, jobs, stamps=stage.stamps(), parent=parent)
        if order.layout is CheckpointFormat.CONSOLIDATED:
            manifest = msgspec.structs.replace(manifest, extras=(write_index(stage, manifest),))
        kept = {record.name for record in (*manifest.files, *manifest.extras)} | {"manifest.json"}
        stage.publish(encode(manifest), replace=replace, obsolete=[f for f in obsolete if f not in kept])
    except DurabilityUnknown:
        raise  # published: the folder stays, whatever the last flush said
    except BaseException:
        with suppress(CheckpointException):  # the first error is the one to tell; recovery sweeps what is left
            stage.abort()
        raise
    return manifest


def _stage_files(
    stage: Stage, order: Order, flat: Flat, files: Sequence[plan.FilePlan], parent: Parent | None
) -> list[FileJob | LinkedFile]:
    """Link or lay out every file and reserve its room, so that a full disk is known before the first byte."""
    jobs: list[FileJob | LinkedFile] = []
    metadata = {"format": "pt", "model_checkpoint": order.attempt}
    tools = None if order.compression is CompressionLevel.NONE else Tools(order.compression)
    for i, file in enumerate(files):
        name = file_name(file, i, order.attempt)
        if (linked := link_file(stage, file, name, parent)) is not None:
            jobs.append(linked)
            continue
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
        layout = data_format.lay_out(tensors, metadata=metadata, chunk_bytes=order.limits.chunk_bytes)
        press = None
        if tools is not None and file.part != "model":
            layout = data_format.reserve_frames(layout, metadata=metadata, limits=ReaderLimits())
            press = FilePress(layout, tools, metadata)
        writer = stage.create(name, layout.size)
        sources = [leaves[j].source for j in layout.order]
        jobs.append(FileJob(layout, sources, writer, writer.alignment, press=press))
    return jobs
