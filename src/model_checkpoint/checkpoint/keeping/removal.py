"""Removal: a checkpoint goes to the trash, row and files, and comes back until its grace is over.

What is about to go is written down first; then the files go, then the row; then the writing is closed. Whoever finds it
open carries on.
"""

from __future__ import annotations

import logging

from model_checkpoint.checkpoint.catalog.best_choice import criteria_of, flag_anew
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.database.records import Checkpoint, DeletionIntent
from model_checkpoint.engine.root.delete import discard_exactly, undelete
from model_checkpoint.errors import WrongReference
from model_checkpoint.hooks import HookEvent
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import open_store

log = logging.getLogger("model_checkpoint.manager")

DELETED, RETENTION = "deleted", "retention"  # a state of rows; an action of the audit trail


def store_of(services: Services, row: Checkpoint) -> Store:
    """Where a checkpoint lies: a run may have saved to more than one root."""
    return services.store if row.root in ("", services.store.url) else open_store(row.root)


def remove(services: Services, row: Checkpoint, *, action: str = "delete", plan_id: str = "") -> Checkpoint:
    """Move a checkpoint to the trash and mark its row; raise if a hook says no."""
    result = services.fire(
        HookEvent.BEFORE_CHECKPOINT_DELETE, checkpoint_id=row.id, experiment_id=row.experiment_id, path=row.file_path
    )
    if result is not None:
        result.raise_if_vetoed()
    connection = services.catalog.connection
    intent = connection.record_intent(row.id, action, plan_id=plan_id, details={"name": row.name, "root": row.root})
    gone = _finish(services, row, intent)
    services.fire(HookEvent.AFTER_CHECKPOINT_DELETE, checkpoint_id=row.id, experiment_id=row.experiment_id)
    return gone


def _finish(services: Services, row: Checkpoint, intent: DeletionIntent, outcome: str = "ok") -> Checkpoint:
    """Move the files, then let the catalog know, all of it at once."""
    connection = services.catalog.connection
    there = discard_exactly(store_of(services, row), row.name, row.id)

    def tell() -> Checkpoint:
        gone = connection.delete_checkpoint(row.id)
        if row.is_best_loss or row.is_best_val_loss or row.is_best_metric:
            flag_anew(connection, row.experiment_id, criteria_of(row, services.options.best_metric))
        connection.finish_intent(intent.id, DELETED if there else "was gone")
        details = {"name": row.name, "plan": intent.plan_id}
        connection.record_audit(intent.action, row.id, outcome=outcome, details=details)
        return gone

    # The intent was flushed before the files went. Should the power take what closes it, it is found open and carried
    # out again, so what every save of a full run does needs no flush for that; whoever deletes by hand gets one.
    gone = connection.together(tell, durable=intent.action != RETENTION)
    forget_cached(services, row.experiment_id)
    return gone


def finish_removals(services: Services) -> int:
    """Carry on with what a process that died had begun to remove; return how many."""
    connection = services.catalog.connection
    done = 0
    for intent in connection.open_intents():
        row = connection.get_checkpoint(intent.checkpoint_id)
        if row is None:
            connection.finish_intent(intent.id, "forgotten")
            continue
        _finish(services, row, intent, "finished later")
        done += 1
    return done


def bring_back(services: Services, row: Checkpoint) -> Checkpoint:
    """Undo a removal, files and row."""
    if row.state != DELETED:
        raise WrongReference(f"checkpoint {row.id!r} is not deleted.", row.file_path)
    store = store_of(services, row)
    if not store.has(row.name):
        undelete(store, name=row.name)
    connection = services.catalog.connection
    back = connection.undelete_checkpoint(row.id)
    flag_anew(connection, row.experiment_id, criteria_of(back, services.options.best_metric))
    forget_cached(services, row.experiment_id)
    services.catalog.audit("restore", row.id, name=row.name)
    return back


def forget_cached(services: Services, experiment_id: str) -> None:
    """Let nobody be told what is no longer so."""
    with services.failures.tolerated("cache"):
        services.caches.invalidate_experiment(experiment_id)
