"""Local teller: what a SQLite file of the schema we know is told, through Python's own driver."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from model_checkpoint.database.errors import RowRefused
from model_checkpoint.database.local.local_catalog import LocalCatalog, checkpoint_in
from model_checkpoint.database.records import COMMITTED, DELETED, AuditEntry, Checkpoint, IntegrityRecord, Page
from model_checkpoint.database.values.audit_entries import new_entry
from model_checkpoint.database.values.checkpoint_scores import scores_of
from model_checkpoint.database.values.cursors import cursor_of, read_cursor
from model_checkpoint.database.values.exact_numbers import NOT_A_NUMBER, split
from model_checkpoint.database.values.json_values import as_text, as_words, to_json
from model_checkpoint.errors import WrongReference

T = TypeVar("T")

_FLAGS = {"loss": "is_best_loss", "val_loss": "is_best_val_loss", "metric": "is_best_metric"}
_SCORES = {"min": "grade, value", "max": "grade DESC, value DESC"}
_NEWEST = "step DESC, created_at DESC"
_BEST = f"""
    SELECT checkpoint_id FROM checkpoint_metrics JOIN metric_keys ON metric_keys.id = checkpoint_metrics.key
    WHERE experiment_id = ? AND name = ? AND grade < ? ORDER BY {{}}, {_NEWEST}, checkpoint_id DESC LIMIT ?"""
_INDEX = """
    INSERT INTO checkpoint_metrics (checkpoint_id, key, experiment_id, grade, value, step, created_at)
    SELECT ?, id, ?, ?, ?, ?, ? FROM metric_keys WHERE name = ?"""


class LocalTeller(LocalCatalog):
    """One file that is told something; a :class:`~.catalog_teller.CatalogTeller`."""

    def together(self, work: Callable[[], T], *, durable: bool = True) -> T:
        """Run calls as one transaction: all or none; it is always durable."""
        return self._file.together(work)

    def get_checkpoint(self, checkpoint_id: str) -> Checkpoint | None:
        """One checkpoint, deleted or not."""
        return next(iter(self.get_checkpoints([checkpoint_id])), None)

    def page(self, experiment_id: str, *, limit: int = 100, after: str = "") -> Page[Checkpoint]:
        """Checkpoints of a run, newest first, a page at a time."""
        place = read_cursor(after, 3) if after else []
        beyond = "AND (step, created_at, id) < (?, ?, ?)" if after else ""
        text = f"SELECT * FROM checkpoints WHERE experiment_id = ? AND state = ? {beyond} ORDER BY {_NEWEST}, id DESC"
        rows = self._file.rows(f"{text} LIMIT ?", (experiment_id, COMMITTED, *place, limit + 1))
        found = [checkpoint_in(row) for row in rows[:limit]]
        last = [rows[limit - 1][name] for name in ("step", "created_at", "id")] if len(rows) > limit else []
        return Page(found, cursor_of(last) if last else "")

    def best(self, experiment_id: str, metric: str, direction: str = "min", k: int = 1) -> list[Checkpoint]:
        """The ``k`` best checkpoints of a run by a metric, best first; among equals the newest, NaN not at all."""
        rows = self._file.rows(_BEST.format(_SCORES[direction]), (experiment_id, metric, NOT_A_NUMBER, k))
        return [one for one in self.get_checkpoints([row["checkpoint_id"] for row in rows]) if one.state == COMMITTED]

    def flag_best(self, experiment_id: str, kind: str, checkpoint_ids: Sequence[str]) -> None:
        """Let exactly these checkpoints of a run carry a best flag: of kind ``loss``, ``val_loss`` or ``metric``."""
        flag, ids = _FLAGS[kind], sorted(set(checkpoint_ids))
        marks = ", ".join("?" * len(ids))
        clear = f"UPDATE checkpoints SET {flag} = 0 WHERE experiment_id = ? AND {flag} = 1 AND id NOT IN ({marks})"
        give = f"UPDATE checkpoints SET {flag} = 1 WHERE experiment_id = ? AND state = ? AND id IN ({marks})"

        def both() -> None:
            self._file.change(clear, (experiment_id, *ids))
            if self._file.change(give, (experiment_id, COMMITTED, *ids)) != len(ids):
                raise RowRefused(
                    f"experiment {experiment_id!r} has no checkpoint {', '.join(ids)}; no flag was changed."
                )

        self.together(both)

    def mark_deleted(self, checkpoint_id: str, *, at: float | None = None) -> bool:
        """Mark a checkpoint deleted, nobody's best; says whether it was this call that did."""
        when, flags = time.time() if at is None else at, ", ".join(f"{flag} = 0" for flag in _FLAGS.values())
        text = f"UPDATE checkpoints SET state = ?, deleted_at = ?, {flags} WHERE id = ? AND state = ?"

        def both() -> bool:
            met = self._file.change(text, (DELETED, when, checkpoint_id, COMMITTED)) > 0
            if met:
                self._unindex(checkpoint_id)
            return met

        return self.together(both)

    def undelete_checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """Bring a deleted checkpoint back into the lists; its best flags are for whoever knows."""

        def all_of_it() -> Checkpoint:
            there = self._there(checkpoint_id)
            text = "UPDATE checkpoints SET state = ?, deleted_at = NULL WHERE id = ?"
            self._file.change(text, (COMMITTED, checkpoint_id))
            self._unindex(checkpoint_id)
            for name, score in sorted(scores_of(there).items()):
                self._file.change("INSERT INTO metric_keys (name) VALUES (?) ON CONFLICT DO NOTHING", (name,))
                pair = (*split(score), there.step, there.created_at)
                self._file.change(_INDEX, (checkpoint_id, there.experiment_id, *pair, name))
            return dataclasses.replace(there, state=COMMITTED, deleted_at=None)

        return self.together(all_of_it)

    def update_checkpoint(self, checkpoint_id: str, *, pinned: bool, tags: Sequence[str], notes: str) -> Checkpoint:
        """Let a checkpoint have these marks."""
        marks = (pinned, _as_json(as_words(tags, "tags")), as_text(notes, "notes"))
        self._file.change(
            "UPDATE checkpoints SET pinned = ?, tags = ?, notes = ? WHERE id = ?", (*marks, checkpoint_id)
        )
        return self._there(checkpoint_id)

    def record_integrity(self, record: IntegrityRecord) -> IntegrityRecord:
        """Note what a verification found; the checkpoint's health and time follow in the same transaction."""
        known = record if record.id else dataclasses.replace(record, id=uuid.uuid4().hex)
        text = "UPDATE checkpoints SET health = ?, verified_at = ? WHERE id = ? AND verified_at <= ?"

        def both() -> None:
            self._add("integrity_records", known)
            self._file.change(text, (known.outcome, known.checked_at, known.checkpoint_id, known.checked_at))

        self.together(both)
        return known

    def record_audit(
        self, action: str, subject: str = "", *, outcome: str = "ok", details: Mapping[str, Any] | None = None
    ) -> AuditEntry:
        """Add one row to the log: when, who, what, outcome."""
        entry = new_entry(action, subject, outcome=outcome, details=details)
        self._add("audit_log", entry)
        return entry

    def _there(self, checkpoint_id: str) -> Checkpoint:
        found = self.get_checkpoint(checkpoint_id)
        if found is None:
            raise WrongReference(f"checkpoint {checkpoint_id!r} is not in the catalog.")
        return found

    def _unindex(self, checkpoint_id: str) -> None:
        self._file.change("DELETE FROM checkpoint_metrics WHERE checkpoint_id = ?", (checkpoint_id,))

    def _add(self, table: str, record: AuditEntry | IntegrityRecord) -> None:
        """Write a record that has an id and details, once."""
        told = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
        told["details"] = _as_json(dict(record.details))
        places = ", ".join("?" * len(told))
        text = f"INSERT INTO {table} ({', '.join(told)}) VALUES ({places}) ON CONFLICT (id) DO NOTHING"
        self._file.change(text, tuple(told.values()))


def _as_json(value: Any) -> str:
    return msgspec.json.encode(to_json(value, "details")).decode()
