"""Object folder: everything below the name of one checkpoint, and which version of it each file belongs to.

The version in place, those that were deleted and may come back, and what attempts at work put there share the folder.
Which files a deleted version has is written down before its manifest is switched off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from model_checkpoint.errors import StorageFailure
from model_checkpoint.storage.contract.names import MANIFEST, TrashToken, is_name
from model_checkpoint.storage.contract.sidecars import seal, unseal
from model_checkpoint.storage.objects.commit import CurrentManifest, find, look
from model_checkpoint.storage.objects.leases import leases
from model_checkpoint.storage.objects.requests.bucket import Bucket, ObjectMeta, log
from model_checkpoint.storage.objects.requests.failures import KeyMissing
from model_checkpoint.storage.objects.requests.keys import (
    CHECKPOINTS,
    RECORD,
    deleted_key,
    deletion_of,
    is_of,
    plain_name,
)

_TRIES = 16


class DeletedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Which files a deleted version has."""

    identity: str  # of the version
    files: dict[str, int]  # stored name -> size
    purged: bool = False  # they are being removed: nobody brings it back any more

    def encode(self) -> bytes:
        """One line, and its digest: whoever reads it wrongly would remove what is needed."""
        return seal(msgspec.json.encode(self))

    @classmethod
    def decode(cls, data: bytes) -> DeletedFiles | None:
        """Read a record; None if it is damaged.

        Example:
            >>> record = DeletedFiles(identity="a1", files={"x-a1": 3})
            >>> DeletedFiles.decode(record.encode()) == record, DeletedFiles.decode(record.encode()[1:])
            (True, None)
        """
        line = unseal(data)
        return None if line is None else _RECORDS.decode(line)


_RECORDS = msgspec.json.Decoder(DeletedFiles)  # made once: msgspec crashes where two threads meet a class first


@dataclass(slots=True)
class Folder:
    """The objects below one name, sorted; only what a listing tells."""

    name: str
    manifest: ObjectMeta | None = None  # of the version in place, or the mark of a deletion
    files: dict[str, ObjectMeta] = field(default_factory=dict)  # by stored name, of all versions
    deletions: dict[TrashToken, dict[str, ObjectMeta]] = field(default_factory=dict)  # manifest and record of each

    def add(self, stored: str, item: ObjectMeta) -> None:
        """Put one object where it belongs."""
        if stored == MANIFEST:
            self.manifest = item
        elif (told := deletion_of(self.name, stored)) is not None:
            self.deletions.setdefault(told[0], {})[told[1]] = item
        else:
            self.files[stored] = item

    @property
    def published(self) -> bool:
        """Whether there is a checkpoint of that name."""
        return self.manifest is not None and self.manifest.size > 0


def deletion_time(items: Mapping[str, ObjectMeta]) -> datetime:
    """When a version was deleted, by the store's clock."""
    return max(item.modified for item in items.values()) if RECORD not in items else items[RECORD].modified


def list_folder(bucket: Bucket, name: str) -> Folder:
    """What lies below ``name``."""
    return _sort(bucket.list(f"{CHECKPOINTS}/{name}")).get(name, Folder(name))


def list_folders(bucket: Bucket) -> dict[str, Folder]:
    """What lies below each name there is."""
    return _sort(bucket.list(CHECKPOINTS))


def _sort(items: Iterable[ObjectMeta]) -> dict[str, Folder]:
    folders: dict[str, Folder] = {}
    for item in items:
        name, slash, stored = item.key.removeprefix(f"{CHECKPOINTS}/").partition("/")
        if slash and is_name(name):
            folders.setdefault(name, Folder(name)).add(stored, item)
    return folders


def read_record(bucket: Bucket, token: TrashToken) -> DeletedFiles | None:
    """Which files a deleted version has; None if its record is damaged, ``KeyMissing`` if it is gone."""
    record = DeletedFiles.decode(bucket.get(deleted_key(token, RECORD)).data)
    if record is None:
        log.warning("%s: is damaged, left alone", bucket.where(deleted_key(token, RECORD)))
    return record


def files_of(bucket: Bucket, place: CurrentManifest, name: str) -> dict[str, ObjectMeta]:
    """Every stored file of the published version ``place``, but for its manifest.

    The files are listed before the leases: an attempt has its lease before its first file.
    """
    folder, away = _list_with_deleted(bucket, name, place)
    at_work = [attempt for attempt in leases(bucket) if any(is_of(stored, attempt) for stored in folder.files)]
    now = find(bucket, name) if at_work else None
    strangers = [attempt for attempt in at_work if now is None or attempt != now.attempt]
    return {
        stored: item
        for stored, item in folder.files.items()
        if stored not in away
        and plain_name(stored, place.home) is not None
        and not any(is_of(stored, attempt) for attempt in strangers)
    }


def _list_with_deleted(bucket: Bucket, name: str, place: CurrentManifest) -> tuple[Folder, set[str]]:
    """What lies below ``name``, and which of it belongs to other versions, that were deleted."""
    for _ in range(_TRIES):
        folder = list_folder(bucket, name)
        try:
            records = [read_record(bucket, token) for token, items in folder.deletions.items() if RECORD in items]
        except KeyMissing:
            continue  # purged or brought back since it was listed
        away = [record.files for record in records if record is not None and record.identity != place.identity]
        return folder, {stored for files in away for stored in files}
    raise restless(bucket, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderState:
    """All there is of one name at one moment."""

    place: CurrentManifest | None
    folder: Folder
    records: Mapping[TrashToken, DeletedFiles]

    def needed(self, *, without: TrashToken | None = None) -> frozenset[str]:
        """Stored files that the version in place needs, or that may come back with a deleted one."""
        kept = {stored for token, record in self.records.items() if token != without for stored in record.files}
        if self.place is None or not self.place.published:
            return frozenset(kept)
        listed = self.place.listed() or frozenset()
        return frozenset({*kept, *listed, *(f"{file}~{self.place.home}" for file in listed)})


def steady_state(bucket: Bucket, name: str) -> FolderState | None:
    """What there is of ``name``; None if a record is damaged, so that nobody can tell what is needed.

    Whatever happens to a name shows in its manifest: while that stays the same, what was listed meanwhile is true.
    """
    for _ in range(_TRIES):
        place, folder = look(bucket, name), list_folder(bucket, name)
        try:
            found = {token: read_record(bucket, token) for token, items in folder.deletions.items() if RECORD in items}
        except KeyMissing:
            continue
        if _same(place, look(bucket, name)):
            records = {token: record for token, record in found.items() if record is not None}
            return FolderState(place=place, folder=folder, records=records) if len(records) == len(found) else None
    raise restless(bucket, name)


def _same(one: CurrentManifest | None, other: CurrentManifest | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.attempt == other.attempt and one.data == other.data


def restless(bucket: Bucket, name: str) -> StorageFailure:
    """The error for a name that never stays the same long enough to be looked at."""
    where = bucket.where(f"{CHECKPOINTS}/{name}")
    return StorageFailure(f"{where}: something keeps changing it. Let one process at a time write it.", where)
