"""Removed rows: what the catalog learns of a checkpoint that went, all of it at once; done twice it is done once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from model_checkpoint.checkpoint.catalog.best_choice import criteria_of, flag_anew
from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.database.records import AuditEntry, Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A checkpoint that went: its row as it was, and the entry that says who removed it, when and why."""

    row: Checkpoint
    entry: AuditEntry
    intent: str = ""  # what was written down before; empty if there was no room for it
    ended: str = "deleted"
    best_metric: str | None = None

    def as_record(self) -> dict[str, Any]:
        """As plain data, to be kept while the database cannot be written to."""
        return dataclasses.asdict(self)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Removal:
        """What was kept, again."""
        own = {"row": Checkpoint(**record["row"]), "entry": AuditEntry(**record["entry"])}
        return cls(**{**record, **own})


def record_removal(connection: EnhancedDatabaseConnection, removal: Removal, *, durable: bool = True) -> None:
    """Mark the row, hand its flags on, close the intent; the one who marks it, of all that try, adds the entry.

    Example:
        >>> from model_checkpoint.database import Experiment
        >>> from model_checkpoint.database.catalog.audit_rows import new_entry
        >>> with EnhancedDatabaseConnection("sqlite://") as db:
        ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
        ...     row = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
        ...     for _ in range(2):
        ...         record_removal(db, Removal(row=row, entry=new_entry("delete", "c1")))
        ...     db.get_checkpoint("c1").state, len(db.audit(action="delete").items)
        ('deleted', 1)
    """
    row = removal.row

    def tell() -> None:
        if connection.mark_deleted(row.id, at=removal.entry.at):
            if row.is_best_loss or row.is_best_val_loss or row.is_best_metric:
                flag_anew(connection, row.experiment_id, criteria_of(row, removal.best_metric))
            connection.add_audit(removal.entry)
        if removal.intent:
            connection.finish_intent(removal.intent, removal.ended)

    connection.together(tell, durable=durable)
