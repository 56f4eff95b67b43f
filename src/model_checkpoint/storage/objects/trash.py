"""Object trash: deleted and replaced checkpoints can be brought back until their grace ends.

No file moves, and nothing is copied but the manifest. A deletion writes down which files the version has, keeps its
manifest beside them, and then switches the manifest in place to no bytes; a replacement does the same, and switches it
to the new one. Bringing back puts the manifest in its place. Of what died half-way, or was undone half-way, the version
in place tells that it is no deletion.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import msgspec

from model_checkpoint.errors import CheckpointException, CheckpointNotFound, StorageFailure
from model_checkpoint.storage.contract.failures import deletion_over, name_taken_again, no_such_checkpoint, not_in_trash
from model_checkpoint.storage.contract.names import MANIFEST, TrashToken
from model_checkpoint.storage.contract.store import Tell, Trashed, nobody
from model_checkpoint.storage.objects import copied_trash
from model_checkpoint.storage.objects.commit import GIVEN_UP, CurrentManifest, ManifestPut, commit, decide, find, put_of
from model_checkpoint.storage.objects.folder import (
    DeletedFiles,
    Folder,
    deletion_time,
    files_of,
    list_folder,
    list_folders,
    read_record,
    restless,
    steady_state,
)
from model_checkpoint.storage.objects.leases import prove
from model_checkpoint.storage.objects.requests.bucket import Bucket, FetchedObject, ObjectMeta, log
from model_checkpoint.storage.objects.requests.failures import ConditionFailed, KeyMissing
from model_checkpoint.storage.objects.requests.keys import (
    CHECKPOINTS,
    RECORD,
    TRASH,
    deleted_key,
    file_key,
    manifest_key,
    verdict_key,
)
from model_checkpoint.storage.objects.requests.parallel import in_parallel, map_in_order

_TRIES = 16


# --- deleting --------------------------------------------------------------------------------------------------------


def discard(bucket: Bucket, name: str, *, only: str | None = None) -> Trashed:
    """Delete a published checkpoint so that it can be brought back; with ``only``, if it is that version."""
    where = bucket.where(f"{CHECKPOINTS}/{name}")
    for _ in range(_TRIES):
        found = find(bucket, name)
        if found is None or only not in (None, found.identity):
            raise no_such_checkpoint(where, bucket.address.url)
        prove(bucket)
        files = {stored: item.size for stored, item in files_of(bucket, found, name).items()}
        token = set_aside(bucket, name, found, files)
        try:
            commit(bucket, name, ManifestPut(data=b"", attempt=str(token), home=found.home), over=found)
        except ConditionFailed:
            forget(bucket, token)  # it was replaced meanwhile: delete what is there now
        else:
            deleted = _unix(bucket.head(deleted_key(token, RECORD)).modified)
            nbytes = len(found.data) + sum(files.values())
            return Trashed(name=name, token=str(token), deleted=deleted, nbytes=nbytes)
    raise StorageFailure(f"{where}: is being replaced all the time. Stop that, then delete it.", where)


def discard_planned(bucket: Bucket, token: TrashToken) -> None:
    """Decide that a checkpoint is deleted, unless others have decided that it is kept, then delete it."""
    where, found = bucket.where(f"{CHECKPOINTS}/{token.name}"), find(bucket, token.name)
    if found is None:
        raise no_such_checkpoint(where, bucket.address.url)
    prove(bucket)
    word = found.identity.encode()
    if decide(bucket, str(token), word) != word:
        raise deletion_over(where)
    _carry_out(bucket, token, word)


def settle_discard(bucket: Bucket, token: TrashToken) -> bool:
    """End a deletion for good; see :meth:`model_checkpoint.storage.contract.shared.SharedTrash.settle_discard`."""
    if find(bucket, token.name) is None:
        return True
    decided = decide(bucket, str(token), GIVEN_UP)
    if decided == GIVEN_UP:
        return find(bucket, token.name) is None  # a verdict that was carried out meanwhile is gone by now
    _carry_out(bucket, token, decided)
    return True


def _carry_out(bucket: Bucket, token: TrashToken, decided: bytes) -> None:
    """Delete the version that was decided about; whoever else does the same may be quicker."""
    try:
        discard(bucket, token.name, only=decided.decode())
    except CheckpointNotFound:
        log.debug("%s: deleted already", token)
    try:
        bucket.delete(verdict_key(str(token)))
    except CheckpointException as error:
        log.warning("%s: its verdict stays until the next recovery (%s)", token, error)


def set_aside(bucket: Bucket, name: str, found: CurrentManifest, files: dict[str, int]) -> TrashToken:
    """Write down which files go with a version, and keep its manifest, before another takes its place."""
    token = _next_token(list_folder(bucket, name))
    bucket.put(deleted_key(token, RECORD), DeletedFiles(identity=found.identity, files=files).encode())
    # no byte of the manifest passes through here, so none can be spoiled on the way
    bucket.copy(manifest_key(name), deleted_key(token, MANIFEST))
    return token


def _next_token(folder: Folder) -> TrashToken:
    """A key that comes after every other of its name, whatever the clocks of the machines that made them said."""
    last = max((token.nanoseconds for token in folder.deletions), default=0)
    return TrashToken(name=folder.name, nanoseconds=max(last + 1, time.time_ns()), salt=secrets.token_hex(8))


def forget(bucket: Bucket, token: TrashToken) -> None:
    """Take back what was set aside, or is gone."""
    bucket.delete(deleted_key(token, MANIFEST))
    bucket.delete(deleted_key(token, RECORD))


# --- what can be brought back ----------------------------------------------------------------------------------------


def contents(bucket: Bucket) -> list[Trashed]:
    """What can be brought back, in the order of deletion."""
    by_name = copied_trash.contents(bucket)  # made by an earlier version, so before any other of the name
    for found in map_in_order(lambda folder: _describe(bucket, folder), _with_deletions(list_folders(bucket))):
        for item in found:
            by_name.setdefault(item.name, []).append(item)
    ordered = [(moment, item) for items in by_name.values() for moment, item in _in_time(items)]
    return [item for _, item in sorted(ordered, key=lambda one: (one[0], TrashToken.parse(one[1].token).nanoseconds))]


def _with_deletions(folders: Mapping[str, Folder]) -> list[Folder]:
    return [folder for folder in folders.values() if any(MANIFEST in items for items in folder.deletions.values())]


def _in_time(items: Iterable[Trashed]) -> Iterable[tuple[float, Trashed]]:
    """The deletions of one name, in order, each with a moment that is no earlier than that of the one before."""
    latest = 0.0
    for item in items:
        latest = max(latest, item.deleted)
        yield latest, item


def _describe(bucket: Bucket, folder: Folder) -> list[Trashed]:
    place = find(bucket, folder.name) if folder.published else None
    described = []
    for token in sorted(folder.deletions, key=lambda token: token.nanoseconds):
        items = folder.deletions[token]
        try:
            record = read_record(bucket, token) if RECORD in items else None
            real = MANIFEST in items and _can_come_back(bucket, token, record, place, folder)
        except KeyMissing:
            continue  # purged or brought back since it was listed
        if real:
            nbytes = items[MANIFEST].size + (sum(record.files.values()) if record is not None else 0)
            deleted = _unix(deletion_time(items))
            described.append(Trashed(name=folder.name, token=str(token), deleted=deleted, nbytes=nbytes))
    return described


def _can_come_back(
    bucket: Bucket, token: TrashToken, record: DeletedFiles | None, place: CurrentManifest | None, folder: Folder
) -> bool:
    """Whether a version is neither in place nor on its way out, and was not replaced before its deletion was done."""
    if record is None:
        return place is None or bucket.get(deleted_key(token, MANIFEST)).data != place.data
    is_there = not record.purged and record.files.keys() <= folder.files.keys()
    return is_there and (place is None or place.identity != record.identity)


def _unix(moment: datetime) -> float:
    """Whole seconds: some answers of a store tell no more than that."""
    return float(int(moment.timestamp()))


# --- bringing back ---------------------------------------------------------------------------------------------------


def read(bucket: Bucket, text: str) -> bytes:
    """The manifest of what was deleted under a token."""
    return _deleted_manifest(bucket, TrashToken.parse(text, bucket.where(TRASH)))[0].data


def bring_back(bucket: Bucket, text: str) -> str:
    """Undo a discard; return the name."""
    token = TrashToken.parse(text, bucket.where(TRASH))
    record = _record_of(bucket, token)  # before the manifest, which is the first to go
    draft, copied = _deleted_manifest(bucket, token)
    if find(bucket, token.name) is not None:
        raise name_taken_again(bucket.where(f"{CHECKPOINTS}/{token.name}"))
    if record is not None and not _can_come_back(bucket, token, record, None, list_folder(bucket, token.name)):
        raise _not_there(bucket, token)
    prove(bucket)
    if copied:
        copied_trash.copy_back(bucket, token)
    commit(bucket, token.name, draft)
    if copied:
        copied_trash.empty(bucket, str(token))
        return token.name
    if not _is_whole(bucket, token, record):
        _take_back(bucket, token, draft)
        raise _not_there(bucket, token)
    forget(bucket, token)
    return token.name


def _deleted_manifest(bucket: Bucket, token: TrashToken) -> tuple[ManifestPut, bool]:
    """The manifest of what was deleted, and whether copies of its files lie in the trash."""
    for key, copied in ((deleted_key(token, MANIFEST), False), (copied_trash.trash_key(token, MANIFEST), True)):
        try:
            return put_of(_read_twice(bucket, key)), copied
        except KeyMissing:
            continue
    raise _not_there(bucket, token)


def _read_twice(bucket: Bucket, key: str) -> FetchedObject:
    """What is put again as it was read must have been read well."""
    first, second = (bucket.get(key) for _ in range(2))
    if first.data != second.data:
        where = bucket.where(key)
        raise StorageFailure(f"{where}: the manifest reads differently each time. Check the network, try again.", where)
    return first


def _record_of(bucket: Bucket, token: TrashToken) -> DeletedFiles | None:
    try:
        return read_record(bucket, token)
    except KeyMissing:
        return None


def _is_whole(bucket: Bucket, token: TrashToken, record: DeletedFiles | None) -> bool:
    """Whether no recovery has begun to purge what was just brought back.

    Recovery says so in the record before it looks at the manifest in place, and we put that before we look here: one of
    the two sees the other.
    """
    now = _record_of(bucket, token)
    if now is not None:
        return not now.purged
    place, there = find(bucket, token.name), list_folder(bucket, token.name).files.keys()
    if record is not None or place is None:
        return record is not None and record.files.keys() <= there
    return all(file in there or f"{file}~{place.home}" in there for file in place.listed() or ())


def _take_back(bucket: Bucket, token: TrashToken, draft: ManifestPut) -> None:
    place = find(bucket, token.name)
    if place is not None and (place.attempt, place.data) == (draft.attempt, draft.data):
        commit(bucket, token.name, ManifestPut(data=b"", attempt=str(token), home=draft.home), over=place)


def _not_there(bucket: Bucket, token: TrashToken) -> Exception:
    return not_in_trash(bucket.where(f"{TRASH}/{token}"), bucket.address.url)


# --- purging ---------------------------------------------------------------------------------------------------------


def moments(folders: Mapping[str, Folder]) -> dict[str, datetime]:
    """When each version below ``folders`` was deleted, by token."""
    return {str(token): deletion_time(items) for one in folders.values() for token, items in one.deletions.items()}


def purge(
    bucket: Bucket, folders: Mapping[str, Folder], is_over: Callable[[str, datetime], bool], tell: Tell = nobody
) -> tuple[list[str], int]:
    """Remove every deleted version that ``is_over`` by its token and moment; return the tokens and the bytes."""
    purged: list[str] = []
    nbytes = 0
    for folder in folders.values():
        for token, items in folder.deletions.items():
            if is_over(str(token), deletion_time(items)) and (freed := _purge(bucket, token, items)) is not None:
                purged.append(str(token))
                nbytes += freed
                tell(str(token))
    return purged, nbytes


def _purge(bucket: Bucket, token: TrashToken, items: Mapping[str, ObjectMeta]) -> int | None:
    """Remove one deleted version and return its bytes; None if it is none any more, or must wait."""
    freed = items[MANIFEST].size if MANIFEST in items else 0
    try:
        record = _claim(bucket, token) if RECORD in items else None
    except KeyMissing:
        return None  # purged or brought back meanwhile
    if record is None:  # nobody knows its files, so they go as any other that nothing needs
        forget(bucket, token)
        return freed
    state = steady_state(bucket, token.name)
    if state is None:
        return None
    if in_place := state.place is not None and state.place.identity == record.identity:
        doomed = []
    else:
        needed = state.needed(without=token)
        doomed = [stored for stored in record.files if stored in state.folder.files and stored not in needed]
    in_parallel(bucket.delete, [file_key(token.name, stored) for stored in doomed])
    forget(bucket, token)
    return None if in_place else freed + sum(record.files[stored] for stored in doomed)


def _claim(bucket: Bucket, token: TrashToken) -> DeletedFiles | None:
    """Say in the record that its files go, so that nobody brings them back meanwhile; None if it is damaged."""
    for _ in range(_TRIES):
        found = bucket.get(deleted_key(token, RECORD))
        record = DeletedFiles.decode(found.data)
        if record is None or record.purged:
            return record
        record = msgspec.structs.replace(record, purged=True)
        try:
            bucket.put_if(deleted_key(token, RECORD), record.encode(), found.version)
        except ConditionFailed:
            continue  # another recovery was first, or the answer to our own put was lost
        return record
    raise restless(bucket, token.name)
