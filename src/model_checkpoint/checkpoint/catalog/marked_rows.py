"""Marked rows: what a pin, a tag or a note makes of a row, whoever else changed that row meanwhile."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.database.event_records import AuditEntry
from model_checkpoint.database.records import Checkpoint

PIN, UNPIN, TAG, UNTAG, NOTE = "pin", "unpin", "tag", "untag", "note"


@dataclass(frozen=True, slots=True)
class Marking:
    """One mark that is put on a checkpoint, or taken off.

    Example:
        >>> Marking(TAG, ("b",)).change(Checkpoint(id="c1", experiment_id="r1", tags=["a"]))
        {'tags': ['a', 'b']}
    """

    action: str
    words: Sequence[str] = ()

    def change(self, row: Checkpoint) -> dict[str, Any]:
        """The field of a row that it changes, and to what."""
        if self.action in (PIN, UNPIN):
            return {"pinned": self.action == PIN}
        if self.action == NOTE:
            return {"notes": self.words[0]}
        if self.action == UNTAG:
            return {"tags": [one for one in row.tags if one not in self.words]}
        return {"tags": list(dict.fromkeys((*row.tags, *self.words)))}

    def of(self, row: Checkpoint) -> Checkpoint:
        """The row as it is with it."""
        return dataclasses.replace(row, **self.change(row))


def record_marking(
    connection: EnhancedDatabaseConnection, checkpoint_id: str, marking: Marking, entry: AuditEntry
) -> Checkpoint:
    """Change the row and add the entry, both or none.

    Example:
        >>> from model_checkpoint.database import Experiment
        >>> from model_checkpoint.database.values.audit_entries import new_entry
        >>> with EnhancedDatabaseConnection("sqlite://") as db:
        ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
        ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
        ...     record_marking(db, "c1", Marking(PIN), new_entry(PIN, "c1")).pinned, len(db.audit().items)
        (True, 1)
    """

    def tell() -> Checkpoint:
        after = connection.edit_checkpoint(checkpoint_id, marking.of)
        connection.add_audit(dataclasses.replace(entry, details={**entry.details, **marking.change(after)}))
        return after

    return connection.together(tell)
