"""Lying rows: checkpoints as retention looks at them, by what the catalog and the root know of each together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime

from model_checkpoint.checkpoint.catalog.best_choice import measures_of
from model_checkpoint.checkpoint.catalog.catalog_rows import contends
from model_checkpoint.checkpoint.retention.candidates import Candidate, read_candidates
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.engine.root.marks import NO_MARKS, Marks
from model_checkpoint.storage.contract.store import Store

_DAMAGED = ("damaged", "missing")


def candidate_of(row: Checkpoint, marks: Marks = NO_MARKS) -> Candidate:
    """A row as retention looks at it, with what is marked in the root."""
    nbytes = row.file_size if row.unique_bytes is None else row.unique_bytes
    return Candidate(
        id=row.id,
        name=row.name,
        step=row.step,
        committed_at=datetime.fromtimestamp(row.created_at, UTC),
        metrics=measures_of(row),
        contends=contends(row),
        tags=tuple(dict.fromkeys((*row.tags, *marks.tags))),
        pinned=row.pinned or marks.pinned,
        healthy=row.health not in _DAMAGED,
        files=((row.id, nbytes),),
        problem=row.health if row.health in _DAMAGED else "",
        held="its marks cannot be read" if marks.unreadable else "",
    )


def present_rows(store: Store, rows: Sequence[Checkpoint]) -> list[Candidate]:
    """Rows as they lie in the root: what is gone from there, or another checkpoint by now, is no candidate."""
    lying = {one.name: one for one in read_candidates(store, [row.name for row in rows])}
    return [_joined(row, lying[row.name]) for row in rows if row.name in lying and is_of(row, lying[row.name])]


def present_now(store: Store, names: Sequence[str], rows: Sequence[Checkpoint]) -> list[Candidate]:
    """What lies in the root under ``names``, whosever it is, with what those of ``rows`` know that are of it."""
    known = {row.name: row for row in rows}
    return [
        _joined(known[one.name], one) if one.name in known and is_of(known[one.name], one) else one
        for one in read_candidates(store, names)
    ]


def is_of(row: Checkpoint, lying: Candidate) -> bool:
    """Whether a row is of what lies in the root, as far as that can be read."""
    return lying.id in (row.id, "")


def _joined(row: Checkpoint, lying: Candidate) -> Candidate:
    """The marks of both, and the worse of what they say of its health."""
    own = candidate_of(row)
    return dataclasses.replace(
        own,
        tags=tuple(dict.fromkeys((*own.tags, *lying.tags))),
        pinned=own.pinned or lying.pinned,
        healthy=own.healthy and lying.healthy,
        files=lying.files,
        complete=lying.complete,
        problem=lying.problem or own.problem,
        unread=lying.unread,
        held=lying.held,
    )
