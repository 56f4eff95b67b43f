"""Told marks: a pin, tags and a note of a checkpoint, written down with the audit entry that tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

import msgspec

from model_checkpoint.database.local.local_file import LocalFile, is_as_we_know_it
from model_checkpoint.database.records import AuditEntry
from model_checkpoint.database.values.file_urls import file_of
from model_checkpoint.database.values.json_values import as_text, as_words, to_json
from model_checkpoint.errors import WrongReference


def mark_checkpoint(database_url: str, entry: AuditEntry, *, pinned: bool, tags: Sequence[str], notes: str) -> None:
    """Let the row of the checkpoint that ``entry`` is about have these marks; both or nothing is written.

    Example:
        >>> import tempfile
        >>> from model_checkpoint.database import Checkpoint, Experiment, open_catalog
        >>> from model_checkpoint.database.values.audit_entries import new_entry
        >>> url = f"sqlite:///{tempfile.mkdtemp()}/catalog.db"
        >>> with open_catalog(url) as db:
        ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
        ...     _ = db.save_checkpoint(Checkpoint(id="c1", experiment_id="r1"))
        ...     mark_checkpoint(url, new_entry("pin", "c1"), pinned=True, tags=[], notes="")
        ...     db.get_checkpoint("c1").pinned, db.audit(subject="c1").items[0].action
        (True, 'pin')

    Raises:
        WrongReference: The catalog has no such checkpoint.
    """
    if is_as_we_know_it(database_url):
        _tell_file(file_of(database_url), entry, (pinned, _as_json(as_words(tags, "tags")), as_text(notes, "notes")))
        return
    from model_checkpoint.database.connection_classes import open_catalog

    with open_catalog(database_url, auto_migrate=False) as connection:

        def both() -> None:
            connection.update_checkpoint(entry.subject, pinned=pinned, tags=tags, notes=notes)
            connection.add_audit(entry)

        connection.together(both)


def _tell_file(path: str, entry: AuditEntry, marks: tuple[Any, ...]) -> None:
    told = {**asdict(entry), "details": _as_json(entry.details)}
    with closing(LocalFile(path, writable=True)) as file, file.changing() as change:
        if not change("UPDATE checkpoints SET pinned = ?, tags = ?, notes = ? WHERE id = ?", (*marks, entry.subject)):
            raise WrongReference(f"checkpoint {entry.subject!r} is not in the catalog.")
        places = ", ".join("?" * len(told))
        change(f"INSERT INTO audit_log ({', '.join(told)}) VALUES ({places})", tuple(told.values()))


def _as_json(value: Any) -> str:
    return msgspec.json.encode(to_json(value, "marks")).decode()
