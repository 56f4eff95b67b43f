"""Candidates: the checkpoints of a root, as far as retention looks at them.

Heads of manifests, marks, and the stamps of the files are read; no data. Healthy means here: the manifest can be read,
and every file it lists is there in its size. What bytes say, `mckpt verify` tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from model_checkpoint.engine.root.listing import ListedCheckpoint, scan
from model_checkpoint.engine.root.marks import NO_MARKS, Marks, read_marks
from model_checkpoint.errors import (
    CheckpointException,
    CheckpointNotFound,
    CorruptedCheckpoint,
)
from model_checkpoint.storage.contract.names import MANIFEST
from model_checkpoint.storage.contract.stamping import stamp_all
from model_checkpoint.storage.contract.store import FileStat, Store

_UNKNOWN_TIME = "9999"  # what cannot be read counts as newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One checkpoint that may stay or go.

    ``files`` are the copies it is made of, each with its bytes: two checkpoints with the same key share that copy.
    """

    id: str
    name: str
    step: int | None = None
    committed_at: datetime | None = None  # None if nobody knows
    metrics: Mapping[str, Any] = field(default_factory=dict, hash=False)
    tags: tuple[str, ...] = ()
    pinned: bool = False
    healthy: bool = True
    files: tuple[tuple[str, int], ...] = ()
    contends: bool = True  # False if it must not be called the best, whatever was measured
    complete: bool = True  # False for an emergency save that had no time for some parts
    problem: str = ""  # what is wrong with one that is not healthy
    unread: bool = False  # it could not be read here and now, which is no proof of damage
    held: str = ""  # why it must not go, whatever the keepers say

    @property
    def created(self) -> str:
        """Commit time as text that sorts."""
        if self.committed_at is None:
            return _UNKNOWN_TIME
        return self.committed_at.astimezone(UTC).isoformat(timespec="microseconds")

    @property
    def usable(self) -> bool:
        """Whether a resume may start from it."""
        return self.healthy and self.complete

    @property
    def scores(self) -> Mapping[str, Any]:
        """What it may be ranked by."""
        return self.metrics if self.contends else {}

    @property
    def nbytes(self) -> int:
        """Bytes of all its files, shared or not."""
        return sum(dict(self.files).values())


def unique_bytes(candidates: Iterable[Candidate]) -> int:
    """Bytes that checkpoints take together, each copy counted once.

    Example:
        >>> a = Candidate(id="a", name="a", files=(("base", 100), ("a1", 5)))
        >>> b = Candidate(id="b", name="b", files=(("base", 100), ("b1", 7)))
        >>> unique_bytes([a, b])
        112
    """
    return sum({key: nbytes for one in candidates for key, nbytes in one.files}.values())


def read_candidates(store: Store, names: Collection[str] | None = None) -> list[Candidate]:
    """Look at every checkpoint of a root, or at those of ``names`` that are there.

    Marks are read first, so that a pin set meanwhile is at worst too young.
    """
    marks = read_marks(store)
    found = scan(store, names)
    known = {one.summary.id for one in found if one.summary is not None}
    loose = any(one.pinned or one.unreadable for id, one in marks.items() if id not in known)
    stamps = dict(stamp_all(store, [one.name for one in found]))
    candidates = (_candidate(one, stamps[one.name], marks, loose=loose) for one in found)
    return [one for one in candidates if one is not None]


def _candidate(
    found: ListedCheckpoint,
    stamps: Mapping[str, FileStat] | CheckpointException,
    marks: Mapping[str, Marks],
    *,
    loose: bool,
) -> Candidate | None:
    if isinstance(stamps, CheckpointNotFound):
        return None  # deleted meanwhile
    summary = found.summary
    files = _copies(found, stamps)
    if summary is None:
        return Candidate(
            id="",
            name=found.name,
            step=found.step,
            healthy=False,
            files=files,
            problem=_first_line(found.error),
            unread=not isinstance(found.error, CorruptedCheckpoint),
            held="it may be the one that is pinned: a pin has no other" if loose else "",
        )
    mine = marks.get(summary.id, NO_MARKS)
    problem = _first_line(stamps) if isinstance(stamps, CheckpointException) else _missing(found, stamps)
    return Candidate(
        id=summary.id,
        name=found.name,
        step=summary.step,
        committed_at=datetime.fromisoformat(summary.created),
        metrics=found.metrics,
        contends=found.contends,
        tags=mine.tags,
        pinned=mine.pinned,
        healthy=not problem,
        files=files,
        complete=found.complete,
        problem=problem,
        unread=isinstance(stamps, CheckpointException),
        held=f"it may be pinned: {', '.join(mine.unreadable)} cannot be read" if mine.unreadable else "",
    )


def _first_line(error: BaseException | None) -> str:
    return str(error).partition("\n")[0]


def _copies(
    found: ListedCheckpoint, stamps: Mapping[str, FileStat] | CheckpointException
) -> tuple[tuple[str, int], ...]:
    """What it is made of, by the medium, or by its manifest where the medium does not answer."""
    if not isinstance(stamps, CheckpointException):
        return tuple(sorted((stamp.identity, stamp.size) for stamp in stamps.values()))
    copies: Sequence[Any] = found.summary.copies if found.summary is not None else ()
    return tuple((copy.identity or f"{found.name}#{number}", copy.size) for number, copy in enumerate(copies))


def _missing(found: ListedCheckpoint, stamps: Mapping[str, FileStat]) -> str:
    """What is wrong with the files, as far as sizes tell."""
    copies = found.summary.copies if found.summary is not None else ()
    there = Counter(stamp.size for file, stamp in stamps.items() if file != MANIFEST)
    lacking = sum((Counter(copy.size for copy in copies) - there).values())
    return f"{lacking} of its {len(copies)} files are gone or have another size" if lacking else ""
