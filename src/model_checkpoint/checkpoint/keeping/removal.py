"""Removal: a checkpoint goes to the trash, row and files, and comes back until its grace is over.

What is about to go, or to come back, is written down first; then the files move, then the row; then the writing is
closed. Whoever finds it open carries on. Where there is no room to write it down, the files move first: freeing some
must not need any.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from model_checkpoint.checkpoint.catalog.removed_rows import Removal, record_return
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.database.errors import DatabaseFull
from model_checkpoint.database.event_records import AuditEntry
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.database.values.audit_entries import new_entry
from model_checkpoint.engine.root.delete import discard_exactly, undelete_exactly
from model_checkpoint.errors import CheckpointException, WrongReference
from model_checkpoint.hooks import HookEvent
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import open_store

log = logging.getLogger("model_checkpoint.manager")

DELETED, RETENTION, RESTORE = "deleted", "retention", "restore"  # a state of rows; actions of the audit trail


def store_of(services: Services, row: Checkpoint) -> Store:
    """Where a checkpoint lies: a run may have saved to more than one root."""
    return services.store if row.root in ("", services.store.url) else open_store(row.root)


def remove(
    services: Services, row: Checkpoint, *, action: str = "delete", plan_id: str = "", tags: Sequence[str] = ()
) -> Checkpoint:
    """Move a checkpoint to the trash and mark its row; raise if a hook says no.

    ``tags`` are those it had when that was decided: with others it stays, should somebody else have to carry on.
    """
    own = {"checkpoint_id": row.id, "experiment_id": row.experiment_id}
    result = services.fire(HookEvent.BEFORE_CHECKPOINT_DELETE, **own, path=row.file_path)
    services.require_consent(result, action, row.id)
    with services.reporting_failure(action, row.id, row.experiment_id):
        intent = _intended(services, row, action, plan_id, tags)
        entry = new_entry(action, row.id, details={"name": row.name, "plan": plan_id})
        gone = finish_removal(services, row, intent=intent, entry=entry)
    services.fire(HookEvent.AFTER_CHECKPOINT_DELETE, **own)
    return gone


def _intended(services: Services, row: Checkpoint, action: str, plan_id: str, tags: Sequence[str]) -> str:
    """Write down what is about to happen, and return the id of that; empty where there is no room for it."""
    details = {"name": row.name, "root": row.root, "tags": list(tags)}
    try:
        return services.catalog.connection.record_intent(row.id, action, plan_id=plan_id, details=details).id
    except DatabaseFull as error:
        services.catalog.note_away(error)
        log.warning("%s: moves without being written down first: %s", row.file_path, error)
        return ""


def finish_removal(services: Services, row: Checkpoint, *, intent: str, entry: AuditEntry) -> Checkpoint:
    """Move the files, then let the catalog know, all of it at once."""
    there = discard_exactly(store_of(services, row), row.name, row.id)
    services.sweeper.note(row.id)
    ended = DELETED if there else "was gone"
    criterion = services.catalog.criterion(row.experiment_id, services.options.best_metric)
    removal = Removal(row=row, entry=entry, intent=intent, ended=ended, best_metric=criterion)
    # The intent was flushed before the files went. Should the power take what closes it, it is found open and carried
    # out again, so what every save of a full run does needs no flush for that; whoever deletes by hand gets one.
    services.catalog.record_removal(removal, durable=entry.action != RETENTION)
    forget_cached(services, row.experiment_id)
    flagless = dataclasses.replace(row, is_best_loss=False, is_best_val_loss=False, is_best_metric=False)
    return dataclasses.replace(flagless, state=DELETED, deleted_at=entry.at)


def bring_back(services: Services, row: Checkpoint) -> Checkpoint:
    """Undo a removal, files and row."""
    if row.state != DELETED:
        raise WrongReference(f"checkpoint {row.id!r} is not deleted.", row.file_path)
    with services.reporting_failure(RESTORE, row.id, row.experiment_id):
        intent = _intended(services, row, RESTORE, "", ())
        try:
            undelete_exactly(store_of(services, row), row.name, row.id)
        except CheckpointException:  # whoever asked is told, and asks again; nobody does so unasked
            if intent:
                services.catalog.connection.finish_intent(intent, "given up")
            raise
        return finish_return(services, row, intent=intent, entry=new_entry(RESTORE, row.id, details={"name": row.name}))


def finish_return(services: Services, row: Checkpoint, *, intent: str, entry: AuditEntry) -> Checkpoint:
    """Let the catalog know that the files are back, all of it at once."""
    criterion = services.catalog.criterion(row.experiment_id, services.options.best_metric)
    back = Removal(row=row, entry=entry, intent=intent, ended="restored", best_metric=criterion)
    now = record_return(services.catalog.connection, back)
    forget_cached(services, row.experiment_id)
    return now


def forget_cached(services: Services, experiment_id: str) -> None:
    """Let nobody be told what is no longer so."""
    with services.failures.tolerated("cache"):
        services.caches.invalidate_experiment(experiment_id)
