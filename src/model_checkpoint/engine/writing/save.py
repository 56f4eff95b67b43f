"""Save: one training state becomes one durable checkpoint. Read ``save`` and you have read the pipeline.

A save has two halves that a background save runs in different threads: ``plan_save`` plans it to the last byte and
writes nothing (an incremental one links the files it repeats), ``commit_plan`` writes and publishes it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import msgspec

from model_checkpoint import tree
from model_checkpoint.coordination import Coordinator
from model_checkpoint.engine.common.info import CheckpointInfo, info_of, path_of
from model_checkpoint.engine.common.option_checks import require
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.jobs import followups, inflight
from model_checkpoint.engine.jobs.followups import FollowUp
from model_checkpoint.engine.ranks.single_process import hint_at_ranks, refuse_shards
from model_checkpoint.engine.reading.verify import damage_of
from model_checkpoint.engine.repairing.protect import protect
from model_checkpoint.engine.root.recover import recover_once, tell_of_trash
from model_checkpoint.engine.root.shared_files import share_of
from model_checkpoint.engine.writing import bandwidth
from model_checkpoint.engine.writing.commit_time import commit_time
from model_checkpoint.engine.writing.incremental import find_parent
from model_checkpoint.engine.writing.manifest_build import write_index
from model_checkpoint.engine.writing.rank_saves.save_ranks import RankRequest, save_on_ranks
from model_checkpoint.engine.writing.request import SaveRequest, refuse_own_mirror, request_save
from model_checkpoint.engine.writing.save_plan import SavePlan, plan_flat
from model_checkpoint.engine.writing.slabs import FileJob, write_files
from model_checkpoint.errors import CheckpointException, CheckpointNotFound, NeedsCoordinator, StepExists
from model_checkpoint.manifest import Manifest, decode_summary, encode
from model_checkpoint.options import CheckpointFormat, CompressionLevel
from model_checkpoint.storage.contract.store import Store, Swapping
from model_checkpoint.storage.locate import Root, open_store

log = logging.getLogger("model_checkpoint.save")

_OVERWRITE = (
    'pass overwrite="damaged" to replace it only if it is damaged, as after a load that fell back, or overwrite=True '
    "to replace it as it is"
)

Overwrite = bool | Literal["damaged"]
Parity = Literal["xor", "pq"]
Move = Callable[[Sequence[FileJob]], None]  # brings every byte of the files to the medium and seals them


def save(
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
    progress: Listen = None,
    coordinator: Coordinator | None = None,
) -> CheckpointInfo:
    """Save ``state`` under ``root``; when this returns, the checkpoint survives power loss.

    Args:
        root: A folder, or an ``s3://``, ``gs://``, ``az://`` or ``memory://`` URL; made if it does not exist.
        state: Any nesting of dicts, lists, tuples, dataclasses with arrays, scalars, modules, optimizers.
        step: Training step; names the folder ``step-00000100`` and decides which checkpoint is newest.
        metrics: Numbers to choose by later (``load(best="val_loss")``).
        metadata: Plain data to keep beside the state.
        name: Folder name, instead of one made from the step.
        id: The id of the checkpoint, instead of a random one.
        overwrite: Replace a checkpoint of that name; ``"damaged"`` only if verification proves damage, not if it is of
            a newer format or cannot be read just now.
        format: How tensors are spread over files.
        compression: How hard to compress the files, without loss; a consolidated model stays as other tools read it.
        incremental: Repeat files of the newest checkpoint that did not change, by link; each stays whole by itself, but
            what is shared is one copy.
        parity: Make parity files behind the acknowledgement: ``"xor"`` gives any one lost file back, ``"pq"`` any two
            (see :func:`repair`). Data files are cut so that there are several.
        mirror: A second root to copy the checkpoint to, behind the acknowledgement.
        progress: Called with a :class:`~model_checkpoint.events.Progress` as bytes reach the medium; True shows a bar.
        coordinator: The ranks that save together, each its part, as one checkpoint or none (see
            :mod:`model_checkpoint.distributed`); every rank makes this call. Without one a save is of this process.

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

    def request() -> SaveRequest:
        require(overwrite=overwrite, progress=progress)
        return request_save(
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

    store = open_store(root)

    def together(ranks: Coordinator) -> CheckpointInfo:
        asked = rank_request(store, request, overwrite)
        return save_on_ranks(store, asked, state, coordinator=ranks, progress=progress)

    if coordinator is not None and coordinator.world_size > 1:
        return together(coordinator)
    order = request()
    refuse_own_mirror(store, order)
    inflight.raise_unseen(store.url)
    followups.warn_unseen(store.url)
    try:
        planned = plan_save(store, order, state, overwrite=overwrite)
    except NeedsCoordinator:
        if coordinator is None:
            raise
        return together(coordinator)  # a mesh of one rank
    planned.deciding = getattr(coordinator, "deciding", None)
    with listening(progress, "saving") as emit:
        info, _ = commit_plan(planned, lambda jobs: write_files(jobs, emit=emit))
        return info


def rank_request(store: Store, request: Callable[[], SaveRequest], overwrite: Overwrite) -> RankRequest:
    """What one of many ranks asks for."""
    return RankRequest(
        request=request,
        overwrite=overwrite,
        may_replace=lambda order: _may_replace(store, order, overwrite),
        obsolete=lambda taken: _replaced_files(store, taken),
    )


def plan_save(store: Store, order: SaveRequest, state: Any, *, overwrite: Overwrite) -> SavePlan:
    """Plan a save; raise if its name is taken or a value of ``state`` cannot be saved."""
    replacing = _may_replace(store, order, overwrite)
    # whoever replaces a damaged checkpoint must not link to its files, nor to others that share them
    parent = find_parent(store) if order.incremental and not (replacing and overwrite == "damaged") else None
    flat = tree.flatten(state)
    refuse_shards(flat, path_of(store, order.name))
    return plan_flat(store, order, flat, replacing=replacing, parent=parent)


def _may_replace(store: Store, order: SaveRequest, overwrite: Overwrite) -> bool:
    """Decide before a byte is staged whether the name is free, or what has it, now or at the end, may be replaced."""
    name = order.name
    if not store.has(name):
        return overwrite is True
    if (
        overwrite
        and order.layout is CheckpointFormat.CONSOLIDATED
        and isinstance(store, Swapping)
        and not store.can_swap()
    ):
        raise StepExists(
            f"{path_of(store, name)}: the index of a consolidated model has a fixed name, so the old version and the "
            "new one must change places as whole folders, which this file system cannot do in one step. Delete the old "
            "one first, or save under another step. Nothing was written.",
            path_of(store, name),
        )
    damage = damage_of(store, name) if overwrite == "damaged" else ()
    if overwrite is True or not all(one.unread for one in damage):
        return True
    cure = "it is healthy, so it is kept" if overwrite == "damaged" else _OVERWRITE
    if damage:
        cure = f"it cannot be judged here, so it is kept ({damage[0].problem}); pass overwrite=True to replace it"
    raise StepExists(
        f"{path_of(store, name)}: already committed; {cure}, or choose another step. Nothing was written."
        f"{hint_at_ranks()}",
        path_of(store, name),
    )


def commit_plan(planned: SavePlan, move: Move) -> tuple[CheckpointInfo, FollowUp | None]:
    """Carry out a planned save; when this returns, the checkpoint survives power loss. Parity and mirror follow."""
    started = time.monotonic()
    log.info("%s: saving", planned.where)
    recover_once(planned.store)
    try:
        manifest = _write(planned, move)
    except CheckpointException as error:
        log.error("%s: save failed: %s", planned.where, error)
        tell_of_trash(planned.store, error)
        raise
    info, seconds = _info(planned, manifest), time.monotonic() - started
    bandwidth.note(planned.store.url, _written_bytes(planned, manifest), seconds)
    log.info("%s: saved %d bytes in %.3f s", planned.where, info.size_bytes, seconds)
    return info, protect(planned.store, manifest, planned.order.mirror)


def _info(planned: SavePlan, manifest: Manifest) -> CheckpointInfo:
    """What was saved, and with whom it shares what was linked."""
    info = info_of(planned.store, manifest)
    if all(isinstance(job, FileJob) for job in planned.jobs):
        return info
    try:
        share = share_of(planned.store, manifest.name)
    except CheckpointException as error:  # it is committed, whatever can be told of it
        log.warning("%s: saved, but not asked with whom it shares files: %s", planned.where, error)
        return info
    return replace(info, shared_bytes=share.nbytes, shared_with=share.names)


def _written_bytes(planned: SavePlan, manifest: Manifest) -> int:
    """Bytes that really went to the medium; a linked file says nothing about its speed."""
    pairs = zip(planned.jobs, manifest.files, strict=True)
    return sum(record.size for job, record in pairs if isinstance(job, FileJob))


def _write(planned: SavePlan, move: Move) -> Manifest:
    """Stage every file, move its bytes, then publish with the manifest last."""
    store, order = planned.store, planned.order
    stage = planned.take_stage()
    try:
        for name, job in planned.named_jobs():
            job.writer = stage.create(name, job.layout.size)  # a full disk is known before the first byte
        move(planned.writing)
        manifest = planned.manifest(stage, created=commit_time(store, order))
        if order.layout is CheckpointFormat.CONSOLIDATED:
            manifest = msgspec.structs.replace(manifest, extras=(write_index(stage, manifest),))
        obsolete = _replaced_files(store, order.name) if planned.replace else ()
        planned.decide()
        stage.publish(encode(manifest), replace=planned.replace, obsolete=obsolete)
    except BaseException:
        with suppress(CheckpointException):  # the first error is the one to tell; recovery sweeps what is left
            stage.abort()  # lets go of the lock; what is, or may be, published stays
        raise
    return manifest


def _replaced_files(store: Store, name: str) -> list[str]:
    """What the checkpoint to be replaced consists of now: what its manifest lists, or all there is if that is damaged.

    Asked at the very end, since another process may replace it meanwhile.
    """
    try:
        summary = decode_summary(store.read_manifest(name), path_of(store, name))
    except CheckpointNotFound:
        return []
    except CheckpointException:
        return [file for file in store.files(name) if file != "manifest.json"]
    return list(summary.file_names)
