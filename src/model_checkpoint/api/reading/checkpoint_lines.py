"""Checkpoint lines: checkpoints in lists, each with the reasons that keep it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from model_checkpoint.api.answers.plain_values import number_of
from model_checkpoint.api.library.shelves import Library, Shelf
from model_checkpoint.api.reading.run_lines import health_word
from model_checkpoint.checkpoint.catalog.best_choice import measures_of
from model_checkpoint.checkpoint.keeping.kept_reasons import KeptReason, kept_by_policies, kept_reasons
from model_checkpoint.database import Checkpoint, CheckpointSearch
from model_checkpoint.database.records import RunHead
from model_checkpoint.database.values.cursors import cursor_of, read_cursor

_STORED = {"unverified": ("unknown", "unchecked")}  # the words people use, and those that are stored


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsWanted:
    """Which checkpoints, in what order."""

    run: str | None = None
    health: tuple[str, ...] = ()
    pinned: bool = False
    unclaimed: bool = False
    sort: str = "-at"
    limit: int = 200
    cursor: str = ""

    @property
    def search(self) -> CheckpointSearch:
        """The same as the catalog takes it."""
        stored = tuple(word for one in self.health for word in _STORED.get(one, (one,)))
        return CheckpointSearch(run=self.run, health=stored, pinned=self.pinned, unclaimed=self.unclaimed)


def list_checkpoints(library: Library, wanted: CheckpointsWanted) -> dict[str, Any]:
    """The document of a list of checkpoints; shelf after shelf, each in the order that is asked for."""
    shelves = library.shelves()
    place, after = (0, "") if not wanted.cursor else _read_place(wanted.cursor, len(shelves))
    rows: list[dict[str, Any]] = []
    following: str | None = None
    for number in range(place, len(shelves)):
        room = wanted.limit - len(rows)
        if not room:
            following = cursor_of([number, ""])
            break
        page = shelves[number].connection.search_checkpoints(
            _meant(shelves[number], wanted.search), sort=wanted.sort, limit=room, after=after if number == place else ""
        )
        rows.extend(lines_of(shelves[number], page.items))
        if page.next:
            following = cursor_of([number, page.next])
            break
    total = sum(sum(shelf.connection.health_counts(_meant(shelf, wanted.search)).values()) for shelf in shelves)
    return {"rows": rows, "counts": _counts(shelves, wanted.run), "total": total, "next": following}


def _counts(shelves: Sequence[Shelf], run: str | None) -> dict[str, int]:
    """By health, and what else is asked for by name."""
    counts: Counter[str] = Counter(all=0, damaged=0, unverified=0, healthy=0, pinned=0, none=0)
    for shelf in shelves:
        for stored, count in shelf.connection.health_counts(CheckpointSearch(run=run)).items():
            counts.update({health_word(stored): count, "all": count})
        for word, search in (
            ("pinned", CheckpointSearch(run=run, pinned=True)),
            ("none", CheckpointSearch(run=run, unclaimed=True)),
        ):
            counts[word] += sum(shelf.connection.health_counts(_meant(shelf, search)).values())
    return dict(counts)


def _meant(shelf: Shelf, search: CheckpointSearch) -> CheckpointSearch:
    """What nothing keeps is also kept by no policy, of which rows tell nothing."""
    return replace(search, besides=kept_by_policies(shelf.connection, search.run)) if search.unclaimed else search


def _read_place(cursor: str, shelves: int) -> tuple[int, str]:
    number, after = read_cursor(cursor, 2)
    inside = isinstance(number, int) and 0 <= number < shelves and isinstance(after, str)
    return (number, after) if inside else (shelves, "")


def lines_of(shelf: Shelf, rows: Sequence[Checkpoint]) -> list[dict[str, Any]]:
    """The lines of some checkpoints, with what keeps each of them."""
    connection = shelf.connection
    runs = connection.run_heads({row.experiment_id for row in rows})
    reasons = kept_reasons(connection, rows)
    nobody = RunHead("", "", None)
    return [_line(shelf, row, runs.get(row.experiment_id, nobody), reasons[row.id]) for row in rows]


def _line(shelf: Shelf, row: Checkpoint, head: RunHead, reasons: Sequence[KeptReason]) -> dict[str, Any]:
    return {
        "id": row.id,
        "run": row.experiment_id,
        "run_name": head.name,
        "experiment": head.project_name,
        "name": row.name,
        "ref": reference(row),
        "told_by": "" if shelf.mirror else shelf.told_by(row.root),
        "step": row.step,
        "at": row.created_at,
        "bytes": row.file_size,
        "unique": row.file_size if row.unique_bytes is None else row.unique_bytes,
        "health": health_word(row.health),
        "verified_at": row.verified_at,
        "pinned": row.pinned,
        "tags": list(row.tags),
        "note": row.notes,
        "reasons": [msgspec.structs.asdict(one) for one in reasons],
        "metrics": {name: number_of(float(value)) for name, value in _numbers(measures_of(row)).items()},
        "deleted_at": row.deleted_at,
        "writable": shelf.writable,
    }


def reference(row: Checkpoint) -> str:
    """How a command line names a checkpoint, quoted for a shell; empty for a bare file of another tool.

    Example:
        >>> reference(Checkpoint(id="c", experiment_id="r", root="my runs/a", name="step-00000010"))
        "'my runs/a@step-00000010'"
    """
    return shlex.quote(f"{row.root}@{row.name}") if row.root and row.name else ""


def _numbers(measures: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in measures.items() if isinstance(value, (int, float))}
