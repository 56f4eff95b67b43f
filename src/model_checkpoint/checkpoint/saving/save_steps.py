"""Save steps: one save, in the order in which it happens. Read ``save`` and ``settle`` and you have read the data flow.

pre-save hooks -> storage backend -> post-save hooks -> integrity -> cache -> row in the database -> retention
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from model_checkpoint.checkpoint.catalog.catalog_rows import row_of
from model_checkpoint.checkpoint.catalog.checkpoint_index import Recorded
from model_checkpoint.checkpoint.keeping.apply_retention import retire
from model_checkpoint.checkpoint.keeping.removal import forget_cached
from model_checkpoint.checkpoint.saving.managed_save import ManagedSave
from model_checkpoint.checkpoint.saving.save_timing import SaveTiming
from model_checkpoint.checkpoint.services import VETOED, Services
from model_checkpoint.checkpoint.storage.backend_io import deposit, is_native
from model_checkpoint.checkpoint.storage.backend_registry import name_of
from model_checkpoint.database.errors import DatabaseClosed
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.errors import (
    CheckpointException,
    CorruptedCheckpoint,
    ManifestMismatch,
    StorageFailure,
    Truncated,
)
from model_checkpoint.hooks import HookEvent
from model_checkpoint.manifest import Summary, decode_summary

log = logging.getLogger("model_checkpoint.manager")

_CHANGEABLE = ("metrics", "loss", "val_loss", "notes", "tags", "metadata")  # what a hook may still change


def save(services: Services, order: ManagedSave, parts: Mapping[str, Any]) -> str:
    """Save ``parts`` durably and record them; return the id."""
    with services.measured("save_checkpoint"):
        timing = SaveTiming()
        order = announce(services, order, parts)
        timing.stretch("hooks")
        with reporting_failure(services, order):
            info = deposit(services.backend, services.store, parts, **engine_options(services, order, parts))
        timing.stretch("writing")
        return settle(services, order, info, timing)


def announce(services: Services, order: ManagedSave, parts: Mapping[str, Any]) -> ManagedSave:
    """Ask the hooks; one may say no, or change what is recorded with the state."""
    if not services.heard(HookEvent.BEFORE_CHECKPOINT_SAVE):
        return order
    asked = {name: getattr(order, name) for name in _CHANGEABLE}
    result = services.fire(
        HookEvent.BEFORE_CHECKPOINT_SAVE,
        checkpoint_id=order.id,
        experiment_id=order.experiment.id,
        state=dict(parts),
        model=parts.get("model"),
        **{"epoch": order.epoch, "step": order.step, "checkpoint_type": order.checkpoint_type, **asked},
    )
    services.require_consent(result, "save", order.id)
    if result is None:
        return order
    with reporting_failure(services, order):  # a hook may have made nonsense of it
        return replace(order, **{name: result.context.get(name, before) for name, before in asked.items()})


def engine_options(services: Services, order: ManagedSave, parts: Mapping[str, Any]) -> dict[str, Any]:
    """The save as the engine is asked for it."""
    own = {} if not is_native(services.backend) else _native_options(services)
    return {
        "name": order.name,
        "id": order.id,
        "step": order.number,
        "metrics": order.measured,
        "metadata": order.remembered(backend=name_of(services.backend), parts=tuple(parts)),
        **own,
    }


def _native_options(services: Services) -> dict[str, Any]:
    names = ("compression", "incremental", "parity", "mirror")
    return {name: getattr(services.options, name) for name in names}


def settle(services: Services, order: ManagedSave, info: CheckpointInfo, timing: SaveTiming) -> str:
    """Bring what is durable into the catalog: from here on it is undone only if it is damaged or refused."""
    services.fire(
        HookEvent.AFTER_CHECKPOINT_SAVE,
        checkpoint_id=order.id,
        experiment_id=order.experiment.id,
        **{"path": info.path, "nbytes": info.size_bytes, "metrics": order.measured},
        **{"epoch": order.epoch, "step": order.step, "loss": order.loss, "val_loss": order.val_loss},
    )
    timing.stretch("hooks")
    with reporting_failure(services, order):
        row, recorded = _recorded(services, order, info, timing)
    if recorded.best:
        forget_cached(services, row.experiment_id)
        _tell_best(services, row, recorded.best)
    if not recorded.waiting:  # without the catalog nobody knows what may go
        with services.failures.tolerated("retention"):
            retire(services, row.experiment_id)
    return row.id


def _recorded(
    services: Services, order: ManagedSave, info: CheckpointInfo, timing: SaveTiming
) -> tuple[Checkpoint, Recorded]:
    """Check what is durable and write its row; undo it if it is damaged or refused."""
    try:
        summary = _examine(services, order) if services.options.integrity and order.compute_checksum else None
        row = row_of(info, summary, root=services.store.url)
        services.remember(row)
        timing.stretch("checking")
        return row, services.catalog.record(
            row,
            order.experiment,
            best_metric=order.best_metric,
            timing=timing.told(services.hooks.timeline(order.id) if services.options.hooks else ()),
        )
    except (StorageFailure, DatabaseClosed) as error:  # which is no proof of damage
        error.add_note(f"its files stay in {info.path}; `mckpt reindex` takes it into the catalog")
        raise
    except Exception as error:
        _undo(services, order, error)
        raise


def _examine(services: Services, order: ManagedSave) -> Summary | None:
    """Look at what was committed, as the next reader will: the manifest by its digest, every file by its size.

    The bytes were hashed while they were written, and are not hashed again. None if a hook said no.
    """
    own = {"checkpoint_id": order.id, "experiment_id": order.experiment.id}
    result = services.fire(HookEvent.BEFORE_INTEGRITY_CHECK, **own)
    if result is not None and not result.success:
        log.warning("%s: recorded without having been looked at: hook %r said no", order.name, result.stopped_by)
        services.catalog.audit("check", order.id, outcome=VETOED, hook=result.stopped_by)
        return None
    where = f"{services.store.url}/checkpoints/{order.name}"
    summary = decode_summary(services.store.read_manifest(order.name), where)
    if summary.id != order.id:
        raise ManifestMismatch(f"{where}: holds the checkpoint {summary.id}, expected {order.id}. Save again.", where)
    sizes = services.store.files(order.name)
    for record in (*summary.files, *summary.extras):
        if sizes.get(record.name) != record.size:
            raise Truncated(
                f"{where}/{record.name}: has {sizes.get(record.name, 'no')} bytes right after the save, the manifest "
                f"says {record.size}. Look at the medium, then save again.",
                where,
                file=record.name,
            )
    services.fire(HookEvent.AFTER_INTEGRITY_CHECK, **own, ok=True)
    return summary


def _tell_best(services: Services, row: Checkpoint, best: Sequence[str]) -> None:
    services.fire(
        HookEvent.ON_BEST_MODEL_UPDATE,
        checkpoint_id=row.id,
        experiment_id=row.experiment_id,
        **{"best": tuple(best), "metrics": dict(row.metrics), "loss": row.loss, "val_loss": row.val_loss},
    )


def _undo(services: Services, order: ManagedSave, error: Exception) -> None:
    """Take file and row back; what cannot be taken back is said with the error."""
    if isinstance(error, CorruptedCheckpoint):
        services.fire(
            HookEvent.ON_INTEGRITY_FAILURE, checkpoint_id=order.id, experiment_id=order.experiment.id, error=error
        )
    with services.failures.tolerated("cache"):
        services.caches.invalidate_checkpoint(order.id)
    try:
        services.store.discard(order.name)
    except CheckpointException as second:
        error.add_note(f"its files could not be taken back and stay: {second}")
    services.catalog.forget(order.id)


def reporting_failure(services: Services, order: ManagedSave) -> AbstractContextManager[None]:
    """Let hooks and the audit trail know of a save that failed, then let it fail."""
    return services.reporting_failure("save", order.id, order.experiment.id)
