"""Unfinished: removals and returns that a process which died had begun are carried on, unless that is no longer meant.

What somebody asked to have deleted goes, and what somebody asked to have back comes back. What was to go only to make
room is judged once more: it stays if it was marked since, or if it is now what a resume would start from.
"""

from __future__ import annotations

import logging

from model_checkpoint.checkpoint.keeping.present_rows import present_rows
from model_checkpoint.checkpoint.keeping.removal import (
    DELETED,
    RESTORE,
    RETENTION,
    finish_removal,
    finish_return,
    store_of,
)
from model_checkpoint.checkpoint.retention.keepers import KeepNamed
from model_checkpoint.checkpoint.retention.retention_plan import plan_retention
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.database.event_records import DeletionIntent
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.database.values.audit_entries import new_entry
from model_checkpoint.engine.root.delete import undelete_exactly
from model_checkpoint.errors import StepExists, WrongReference

log = logging.getLogger("model_checkpoint.manager")


def finish_removals(services: Services) -> int:
    """Carry on with what a process that died had begun to remove or to bring back; return how many."""
    connection = services.catalog.connection
    done = 0
    for intent in connection.open_intents():
        row = connection.get_checkpoint(intent.checkpoint_id)
        if row is None:
            connection.finish_intent(intent.id, "forgotten")
        elif intent.action == RETENTION and _stays(services, row, intent):
            log.warning("%s: was to go to make room, and is wanted by now, so it stays", row.file_path)
            connection.finish_intent(intent.id, "given up")
        elif intent.action == RESTORE:
            done += _returned(services, row, intent)
        else:
            details = {"name": row.name, "plan": intent.plan_id}
            entry = new_entry(intent.action, row.id, outcome="finished later", details=details)
            finish_removal(services, row, intent=intent.id, entry=entry)
            done += 1
    return done


def _returned(services: Services, row: Checkpoint, intent: DeletionIntent) -> bool:
    """Bring a checkpoint back, unless it was deleted anew since, or cannot come back."""
    connection = services.catalog.connection
    if row.state == DELETED and (row.deleted_at or 0.0) > intent.created_at:
        connection.finish_intent(intent.id, "given up")
        return False
    try:
        undelete_exactly(store_of(services, row), row.name, row.id)
    except (WrongReference, StepExists) as error:
        log.warning("%s: was to come back, and cannot: %s", row.file_path, error)
        connection.finish_intent(intent.id, "given up")
        return False
    entry = new_entry(RESTORE, row.id, outcome="finished later", details={"name": row.name})
    finish_return(services, row, intent=intent.id, entry=entry)
    return True


def _stays(services: Services, row: Checkpoint, intent: DeletionIntent) -> bool:
    """Whether a checkpoint that is still there must not go any more to make room."""
    rows = services.catalog.connection.crowd(row.experiment_id, row.root)
    candidates = present_rows(store_of(services, row), rows)
    mine = next((one for one in candidates if one.id == row.id), None)
    if mine is None:  # its files went before
        return False
    if not {*mine.tags} <= {*intent.details.get("tags", ())}:
        return True
    others = frozenset(one.name for one in candidates if one is not mine)
    plan = plan_retention(candidates, [KeepNamed(others)], damaged="drop", root=row.root)
    return any(one.candidate is mine for one in plan.kept)
