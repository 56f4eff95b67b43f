"""Saved rows: all that one save leaves in the catalog, in one transaction: row, best flags, edge and audit entry."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import CompoundSelect, Connection, bindparam, select, true, union_all

from model_checkpoint.database.catalog.catalog_part import CatalogPart
from model_checkpoint.database.catalog.sql_rows import SqlRows
from model_checkpoint.database.event_records import AuditEntry
from model_checkpoint.database.models import CheckpointRow, table_of
from model_checkpoint.database.opening.prepared_statements import query
from model_checkpoint.database.records import COMMITTED, Checkpoint, Comparable
from model_checkpoint.database.table_rows import TableRows
from model_checkpoint.database.values.audit_entries import new_entry
from model_checkpoint.database.values.checkpoint_scores import FLAGS, KINDS, scores_of
from model_checkpoint.database.values.exact_numbers import joined
from model_checkpoint.database.values.row_records import fields_of
from model_checkpoint.database.writes.checkpoint_writes import insert_checkpoint, store_checkpoints

_checkpoints = table_of(CheckpointRow)

Beats = Callable[[Comparable, Comparable], bool]  # the one that has a flag, and the new one


@dataclass(slots=True)
class _Holder:
    """As much of a checkpoint that has a flag as is compared with a new one: a whole record takes longer to build."""

    id: str
    step: int
    created_at: float
    loss: float | None
    val_loss: float | None
    metrics: Mapping[str, float]
    flags: tuple[str, ...]


class SavedCatalog(CatalogPart):
    """What a save leaves."""

    def record_saved(
        self,
        checkpoint: Checkpoint,
        *,
        beats: Mapping[str, Beats] | None = None,
        details: Mapping[str, Any] | None = None,
        entry: AuditEntry | None = None,
    ) -> tuple[str, ...]:
        """Store a checkpoint that was just saved, with its edge, its audit entry and the best flags it wins.

        Saves of one run are put in a row here, so that a flag has one owner whoever saves at the same time. Done twice
        it is the same as done once.

        Args:
            checkpoint: The row.
            beats: Of each kind of flag (``loss``, ``val_loss``, ``metric``) whether the new one beats the one that has
                it; one that does not even beat itself, since it was not measured, never gets the flag.
            details: For the audit entry.
            entry: Who saved it and when, for one that waited; without it, whoever calls, now.

        Returns:
            The kinds of flags it won.

        Example:
            >>> from model_checkpoint.database import EnhancedDatabaseConnection, Experiment
            >>> lower = {"loss": lambda old, new: new.loss < old.loss or new is old}
            >>> with EnhancedDatabaseConnection("sqlite://") as db:
            ...     _ = db.save_experiment(Experiment(id="r1", name="baseline"))
            ...     [db.record_saved(Checkpoint(id=id, experiment_id="r1", loss=loss), beats=lower)
            ...      for id, loss in (("c1", 0.5), ("c2", 0.7), ("c3", 0.3))]
            [('loss',), (), ('loss',)]

        Raises:
            RowRefused: Its run is not in the catalog, or a field breaks a rule.
        """
        keys = self._keys_of(scores_of(checkpoint))
        contests = {kind: better for kind, better in (beats or {}).items() if better(checkpoint, checkpoint)}
        noted = new_entry("save", checkpoint.id) if entry is None else entry

        def work(connection: Connection) -> tuple[str, ...]:
            rows = SqlRows(connection)
            rows.lock("experiments", {"id": checkpoint.experiment_id})  # whoever saves to the same run waits
            there = _known(connection, checkpoint, contests)
            holders = [one for one in there if one.id != checkpoint.id]
            won = tuple(kind for kind, better in contests.items() if _wins(checkpoint, holders, kind, better))
            _take_flags(rows, holders, won)
            flags: dict[str, Any] = {KINDS[kind]: True for kind in won}
            if len(holders) < len(there):
                store_checkpoints(rows, [dataclasses.replace(checkpoint, **flags)], keys)
            else:
                insert_checkpoint(rows, checkpoint, keys, flags)
                _note(rows, checkpoint, noted, {**noted.details, **(details or {}), "best": list(won)})
            return won

        return self._write(work)


# Statements are made once: to make one, and to find out that it is known, takes longer than to run it.
_COMPARED = tuple(
    _checkpoints.c[name]
    for name in ("id", "state", "step", "created_at", "loss", "loss_grade", "val_loss", "val_loss_grade", "metrics")
) + tuple(_checkpoints.c[name] for name in FLAGS)


def _known(connection: Connection, new: Checkpoint, kinds: Collection[str]) -> list[_Holder]:
    """The new one, if it was recorded before, and those that have a flag, as far as they are compared."""
    rows = query(connection, _flag_holders(tuple(kinds)), {"new": new.id, "run": new.experiment_id})
    return [*{row["id"]: _compared(row) for row in rows if row["state"] == COMMITTED or row["id"] == new.id}.values()]


@cache
def _flag_holders(kinds: tuple[str, ...]) -> CompoundSelect[Any]:
    """Each is found by an index of its own; asked for the state too, SQLite would walk through all of a run by it."""
    each = [select(*_COMPARED).where(_checkpoints.c.id == bindparam("new"))]
    for kind in kinds:
        own = (_checkpoints.c.experiment_id == bindparam("run"), _checkpoints.c[KINDS[kind]] == true())
        each.append(select(*_COMPARED).where(*own))
    return union_all(*each)


def _compared(row: Mapping[Any, Any]) -> _Holder:
    loss, val_loss = (
        None if row[f"{name}_grade"] is None else joined(row[f"{name}_grade"], row[name])
        for name in ("loss", "val_loss")
    )
    flags = tuple(flag for flag in FLAGS if row[flag])
    return _Holder(row["id"], row["step"], row["created_at"], loss, val_loss, row["metrics"], flags)


def _wins(new: Checkpoint, holders: Sequence[_Holder], kind: str, better: Beats) -> bool:
    """Whether the new one deserves a flag more than whoever has it."""
    return all(better(one, new) for one in holders if KINDS[kind] in one.flags)


def _take_flags(rows: TableRows, holders: Sequence[_Holder], won: Collection[str]) -> None:
    for one in holders:
        lost = {KINDS[kind]: False for kind in won if KINDS[kind] in one.flags}
        if lost:
            rows.update("checkpoints", {"id": one.id}, lost)


def _note(rows: TableRows, new: Checkpoint, entry: AuditEntry, details: Mapping[str, Any]) -> None:
    edge = {"parent": new.experiment_id, "child": new.id, "kind": "saved", "step": new.step, "created_at": entry.at}
    rows.insert("lineage_edges", [edge])
    rows.insert("audit_log", [{**fields_of(entry), "details": dict(details)}])
