"""Marks: pins, tags and notes of the checkpoints of a root, kept in the root itself.

Each mark is a sidecar of its own under the id of its checkpoint, so it survives a rename of the folder, a deletion and
its undoing, and the loss of any database. What cannot be read is no mark, but it is told: retention drops nothing of
which it cannot know whether it is pinned.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum

import msgspec

from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.errors import CheckpointException, OptionInvalid
from model_checkpoint.storage.contract.sidecars import SidecarKeeper, seal, sidecars_of, unseal
from model_checkpoint.storage.contract.store import Store

log = logging.getLogger("model_checkpoint.marks")

_MOST_CHARACTERS = 10_000


class MarkKind(Enum):
    """What a mark says of its checkpoint."""

    PIN = "pin"  # retention keeps it
    TAG = "tag"  # a word of people's own
    NOTE = "note"  # a remark


class _Mark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One mark as it is written."""

    checkpoint: str  # its id
    kind: MarkKind
    text: str
    made: str  # UTC, ISO 8601


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """All that is marked on one checkpoint; ``unreadable`` are sidecars that may be marks of it."""

    pinned: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""
    unreadable: tuple[str, ...] = ()


NO_MARKS = Marks()


def mark_key(id: str, kind: MarkKind, text: str = "") -> str:
    """The key of a mark; each tag has one of its own.

    Example:
        >>> mark_key("3fa9", MarkKind.PIN), mark_key("3fa9", MarkKind.TAG, "release")
        ('pin.3fa9', 'tag.3fa9.a4d451ec23463726')
    """
    digest = f".{hashlib.sha256(text.encode()).hexdigest()[:16]}" if kind is MarkKind.TAG else ""
    return f"{kind.value}.{id}{digest}"


def add_mark(store: Store, id: str, kind: MarkKind, text: str = "") -> None:
    """Write one mark, durably."""
    if not isinstance(text, str) or len(text) > _MOST_CHARACTERS or (kind is MarkKind.TAG and not text.strip()):
        raise OptionInvalid(f"a {kind.value} is a text of 1 to {_MOST_CHARACTERS} characters, got {text!r:.60}.")
    mark = _Mark(checkpoint=id, kind=kind, text=text, made=datetime.now(UTC).isoformat(timespec="seconds"))
    sidecars_of(store).write_sidecar(mark_key(id, kind, text), seal(msgspec.json.encode(mark)))


def remove_mark(store: Store, id: str, kind: MarkKind, text: str = "") -> None:
    """Remove one mark, durably; one that is not there is no error."""
    sidecars_of(store).remove_sidecar(mark_key(id, kind, text))


def read_marks(store: Store, id: str = "") -> dict[str, Marks]:
    """The marks of a root by the id of their checkpoint: all, or those of one."""
    if not isinstance(store, SidecarKeeper):
        return {}
    found: dict[str, list[_Mark]] = defaultdict(list)
    doubtful: dict[str, list[str]] = defaultdict(list)
    for key, data in store.read_sidecars(id):
        marked = _marked_id(key)
        if marked is None:
            continue
        mark = _believed(key, data)
        if mark is None:
            log.warning("%s/.sidecars/%s: is no mark that can be read; what it may mark is kept", store.url, key)
            doubtful[marked].append(key)
        else:
            found[marked].append(mark)
    return {one: _gather(found.get(one, ()), doubtful.get(one, ())) for one in sorted({*found, *doubtful})}


def _marked_id(key: str) -> str | None:
    """The id in the key of a mark; None if the key is that of something else."""
    kind, _, rest = key.partition(".")
    if kind not in {one.value for one in MarkKind} or not rest:
        return None
    return rest.rpartition(".")[0] or rest if kind == MarkKind.TAG.value else rest


_MARKS = msgspec.json.Decoder(_Mark)  # made once: msgspec crashes where two threads meet a class first


def _believed(key: str, data: bytes | CheckpointException) -> _Mark | None:
    """The mark, if it is whole and is the one its key speaks of."""
    line = unseal(data) if isinstance(data, bytes) else None
    if line is None:
        return None
    try:
        mark = _MARKS.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return mark if mark_key(mark.checkpoint, mark.kind, mark.text) == key else None


def _gather(marks: Iterable[_Mark], unreadable: Iterable[str]) -> Marks:
    by_kind: dict[MarkKind, list[str]] = defaultdict(list)
    for mark in marks:
        by_kind[mark.kind].append(mark.text)
    return Marks(
        pinned=MarkKind.PIN in by_kind,
        tags=tuple(sorted(by_kind[MarkKind.TAG])),
        note="".join(by_kind[MarkKind.NOTE]),
        unreadable=tuple(sorted(unreadable)),
    )


def tell_marks(store: Store, infos: Sequence[CheckpointInfo]) -> list[CheckpointInfo]:
    """Add to ``infos`` what is marked on each; a root whose marks cannot be read is listed without."""
    try:
        marks = read_marks(store)
    except CheckpointException as error:
        log.warning("%s: its pins, tags and notes cannot be read: %s", store.url, error)
        marks = {}
    return [with_marks(info, marks.get(info.id, NO_MARKS)) if info.id in marks else info for info in infos]


def with_marks(info: CheckpointInfo, marks: Marks) -> CheckpointInfo:
    """An info that tells of its marks."""
    return replace(info, pinned=marks.pinned, tags=marks.tags, note=marks.note)


def marked_ids(store: Store) -> dict[str, str]:
    """The keys of all marks, readable or not, and the id of the checkpoint each is of."""
    if not isinstance(store, SidecarKeeper):
        return {}
    return {key: id for key, _ in store.read_sidecars() if (id := _marked_id(key)) is not None}


def forget_marks(store: Store, keys: Sequence[str]) -> None:
    """Remove marks by their keys."""
    for key in keys:
        sidecars_of(store).remove_sidecar(key)
