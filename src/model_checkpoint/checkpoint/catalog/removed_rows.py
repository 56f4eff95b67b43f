"""Removed rows: what the catalog learns of a checkpoint that went or came back, at once; done twice it is done once."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from model_checkpoint.checkpoint.catalog.best_choice import criteria_of, flag_anew
from model_checkpoint.database.event_records import AuditEntry
from model_checkpoint.database.records import DELETED, Checkpoint
from model_checkpoint.errors import WrongReference

if TYPE_CHECKING:  # brings SQLAlchemy, which a command does without
    from model_checkpoint.database import EnhancedDatabaseConnection
    from model_checkpoint.database.local.catalog_writer import CatalogWriter


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


def mark_gone(connection: CatalogWriter, checkpoint_id: str) -> None:
    """Mark a checkpoint deleted that somebody else has removed, and hand its flags on.

    Example:
        >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
        >>> with EnhancedDatabaseConnection("sqlite://") as db:
        ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
        ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1", loss=0.1, is_best_loss=True))
        ...     _ = db.save_checkpoint(Checkpoint(id="c2", experiment_id="r1", loss=0.2))
        ...     mark_gone(db, "c1")
        ...     db.get_checkpoint("c2").is_best_loss
        True

    Raises:
        WrongReference: There is no such checkpoint.
    """

    def tell() -> None:
        row = connection.get_checkpoint(checkpoint_id)
        if row is None:
            raise WrongReference(f"checkpoint {checkpoint_id!r} is not in the catalog.")
        _mark(connection, row, at=time.time())

    connection.together(tell)


def _mark(connection: CatalogWriter, row: Checkpoint, *, at: float, best_metric: str | None = None) -> bool:
    """Mark a row as it is now; says whether it was this call that did."""
    marked = connection.mark_deleted(row.id, at=at)
    if marked and (row.is_best_loss or row.is_best_val_loss or row.is_best_metric):
        flag_anew(connection, row.experiment_id, criteria_of(row, best_metric))
    return marked


def record_removal(connection: EnhancedDatabaseConnection, removal: Removal, *, durable: bool = True) -> None:
    """Mark the row, hand its flags on, close the intent; the one who marks it, of all that try, adds the entry.

    Example:
        >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
        >>> from model_checkpoint.database.values.audit_entries import new_entry
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
        now = connection.get_checkpoint(row.id) or row  # one that went before may have handed its flag to this
        if _mark(connection, now, at=removal.entry.at, best_metric=removal.best_metric):
            connection.add_audit(removal.entry)
        if removal.intent:
            connection.finish_intent(removal.intent, removal.ended)

    connection.together(tell, durable=durable)


def mark_back(connection: CatalogWriter, checkpoint_id: str, best_metric: str | None = None) -> Checkpoint:
    """Mark a checkpoint that is back as there, and let each flag be where it belongs.

    Example:
        >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
        >>> with EnhancedDatabaseConnection("sqlite://") as db:
        ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
        ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1", loss=0.1, is_best_loss=True))
        ...     mark_gone(db, "c1")
        ...     mark_back(db, "c1").state, db.get_checkpoint("c1").is_best_loss
        ('committed', True)
    """

    def tell() -> Checkpoint:
        now = connection.undelete_checkpoint(checkpoint_id)
        flag_anew(connection, now.experiment_id, criteria_of(now, best_metric))
        return now

    return connection.together(tell)


def record_return(connection: EnhancedDatabaseConnection, back: Removal) -> Checkpoint:
    """The way back: mark the row, let each flag be where it belongs, close the intent, add the entry.

    Example:
        >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
        >>> from model_checkpoint.database.values.audit_entries import new_entry
        >>> with EnhancedDatabaseConnection("sqlite://") as db:
        ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
        ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
        ...     row = db.delete_checkpoint("c1")
        ...     record_return(db, Removal(row=row, entry=new_entry("restore", "c1"))).state
        'committed'
    """
    row = back.row

    def tell() -> Checkpoint:
        now = connection.get_checkpoint(row.id) or row
        if now.state == DELETED:
            now = mark_back(connection, row.id, back.best_metric)
            connection.add_audit(back.entry)
        if back.intent:
            connection.finish_intent(back.intent, back.ended)
        return now

    return connection.together(tell)
