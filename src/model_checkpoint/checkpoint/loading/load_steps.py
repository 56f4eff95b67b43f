"""Load steps: one load, in the order in which it happens; nothing is built from a byte that was not checked."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from model_checkpoint import tree
from model_checkpoint.checkpoint.catalog.checkpoint_index import AWAY
from model_checkpoint.checkpoint.keeping.removal import forget_cached, store_of
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.checkpoint.storage.backend_io import as_plain, withdraw
from model_checkpoint.database.errors import RowRefused
from model_checkpoint.database.event_records import IntegrityRecord
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.engine.root.listing import load_manifest
from model_checkpoint.errors import CorruptedCheckpoint
from model_checkpoint.hooks import HookEvent


def load_row(
    services: Services, row: Checkpoint, *, device: Any, full: bool, without: Collection[str] = ()
) -> dict[str, Any]:
    """Give a checkpoint back as plain data, under the keys that people know from ``.pt`` files."""
    began = time.perf_counter()
    with services.measured("load_checkpoint"), told_load(services, row):
        parts = [name for name in parts_of(services, row) if name not in without]
        state = withdraw(
            store_of(services, row), row.name, own=services.backend, parts=parts or None, device=device, full=full
        )
    measured = {"epoch": row.epoch, "step": row.step, "loss": row.loss, "val_loss": row.val_loss}
    return {
        **as_plain(state),
        **{name: value for name, value in measured.items() if name not in state},
        "metrics": dict(row.metrics),
        "config": row.metadata.get("config", {}),
        "_checkpoint_metadata": dataclasses.asdict(row),
        "_load_metadata": {
            "seconds": time.perf_counter() - began,
            "verified": "sha256" if full else "xxh3",
            "device": None if device is None else str(device),
            "path": row.file_path,
        },
    }


def parts_of(services: Services, row: Checkpoint) -> Sequence[str]:
    """The names of the parts in a checkpoint; asked of the manifest where the row does not say."""
    if row.parts or row.backend != "native":
        return tuple(row.parts)
    manifest = load_manifest(store_of(services, row), row.name)
    return tuple(part.name for part in tree.summary(manifest.tree, manifest.entries).parts)


@contextmanager
def told_load(services: Services, row: Checkpoint) -> Iterator[None]:
    """Let hooks, the audit trail and the catalog know of a load and of how it ended."""
    own = {"checkpoint_id": row.id, "experiment_id": row.experiment_id}
    result = services.fire(HookEvent.BEFORE_CHECKPOINT_LOAD, **own, path=row.file_path)
    services.require_consent(result, "load", row.id)
    with services.reporting_failure("load", row.id, row.experiment_id):
        try:
            yield
        except CorruptedCheckpoint as error:
            _note_damage(services, row, error)
            raise
    services.catalog.audit("load", row.id, name=row.name)
    services.fire(HookEvent.AFTER_CHECKPOINT_LOAD, **own, path=row.file_path)


def _note_damage(services: Services, row: Checkpoint, error: CorruptedCheckpoint) -> None:
    """Damage that a load met is damage that the catalog knows of."""
    services.fire(HookEvent.ON_INTEGRITY_FAILURE, checkpoint_id=row.id, experiment_id=row.experiment_id, error=error)
    record = IntegrityRecord(
        checkpoint_id=row.id, outcome="damaged", method="load", details={"problems": [str(error)], "file": error.file}
    )
    try:
        services.catalog.connection.record_integrity(record)
    except (*AWAY, RowRefused) as second:
        services.failures.note("database", second)
    forget_cached(services, row.experiment_id)
