"""Object recovery: recovery. Removes what dead attempts left, stale uploads, and trash past its grace.

Never rolls forward, and never removes what a manifest in place needs. Safe to run at any time, from any number of
processes, and to be killed at any request: a lease goes last. All ages are by the store's own clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.names import MANIFEST, is_name
from model_checkpoint.storage.contract.store import Swept
from model_checkpoint.storage.objects.bucket import Bucket, ObjectMeta, log
from model_checkpoint.storage.objects.commit import CurrentManifest, find, look
from model_checkpoint.storage.objects.failures import KeyMissing
from model_checkpoint.storage.objects.keys import (
    CHECKPOINTS,
    CLOCK,
    STAGING,
    TRASH,
    file_key,
    has_random_id,
    is_of,
    manifest_key,
    plain_name,
    trash_key,
)
from model_checkpoint.storage.objects.leases import LeaseKind, LeaseRecord, is_dead, leases, read_claim, store_time
from model_checkpoint.storage.objects.signed_requests import Upload, abort_upload, list_uploads, remove_mark
from model_checkpoint.storage.objects.trash import empty_token, in_parallel, purge, throw_files

Folders = dict[str, dict[str, ObjectMeta]]  # name -> stored file -> what is there


@dataclass(slots=True)
class _Survey:
    """What was found, in an order in which nothing alive can look dead: files, then leases."""

    folders: Folders
    uploads: list[Upload]
    now: datetime
    alive: dict[str, LeaseRecord | None] = field(default_factory=dict)
    dead: dict[str, LeaseRecord] = field(default_factory=dict)

    def age(self, modified: datetime) -> float:
        return max(0.0, (self.now - modified).total_seconds())


def sweep(bucket: Bucket, graces: Graces) -> Swept:
    """Remove leavings; see :meth:`model_checkpoint.storage.contract.store.Store.sweep`."""
    if bucket.is_empty():
        return Swept()
    survey = _look_around(bucket, graces)
    nbytes = 0
    for attempt, claim in survey.dead.items():
        nbytes += _bury(bucket, attempt, claim, survey)
    nbytes += _clear_orphans(bucket, survey, graces)
    busy = frozenset(claim.token for claim in survey.alive.values() if claim is not None)
    trashed, thrown = purge(bucket, survey.now, graces.trash, busy=busy)
    swept = Swept(attempts=sorted(survey.dead), trashed=trashed, alive=sorted(survey.alive), nbytes=nbytes + thrown)
    if swept.attempts or swept.trashed:
        log.info(
            "%s: removed %d dead attempts and %d deleted checkpoints, %d bytes",
            bucket.address.url,
            len(swept.attempts),
            len(swept.trashed),
            swept.nbytes,
        )
    return swept


def _look_around(bucket: Bucket, graces: Graces) -> _Survey:
    folders: Folders = defaultdict(dict)
    for item in bucket.list(CHECKPOINTS):
        name, slash, stored = item.key.removeprefix(f"{CHECKPOINTS}/").partition("/")
        if slash and is_name(name):
            folders[name][stored] = item
    survey = _Survey(folders, list_uploads(bucket, CHECKPOINTS), store_time(bucket))
    for attempt, item in leases(bucket).items():
        claim, age = read_claim(bucket, item.key), survey.age(item.modified)
        if claim is not None and claim.attempt == attempt and is_dead(claim, age, graces, term=bucket.term):
            survey.dead[attempt] = claim
        else:
            survey.alive[attempt] = claim
    return survey


def _bury(bucket: Bucket, attempt: str, claim: LeaseRecord, survey: _Survey) -> int:
    """Remove all traces of dead work, its lease last."""
    nbytes = 0
    if is_name(claim.name):
        bury = {LeaseKind.SAVE: _bury_save, LeaseKind.DISCARD: _bury_discard, LeaseKind.RESTORE: _bury_restore}[
            claim.work
        ]
        nbytes = bury(bucket, claim, survey.folders.get(claim.name, {}))
    for upload in survey.uploads:
        if is_of(upload.key.rpartition("/")[2], attempt):
            abort_upload(bucket, upload)
    bucket.delete(f"{STAGING}/{attempt}.lease")
    return nbytes


def _bury_save(bucket: Bucket, claim: LeaseRecord, files: dict[str, ObjectMeta]) -> int:
    """If it came to be the checkpoint, the version it replaced goes; if not, its own files go."""
    place = find(bucket, claim.name)
    needed = _needed(place)
    if place is not None and place.attempt == claim.attempt:
        throw_files(bucket, claim.name, [stored for stored in claim.obsolete if stored not in needed])
        return 0
    return _remove(bucket, claim.name, files, [s for s in files if is_of(s, claim.attempt) and s not in needed])


def _bury_discard(bucket: Bucket, claim: LeaseRecord, files: dict[str, ObjectMeta]) -> int:
    """If the deletion took place, the files it deleted go; if not, its copies in the trash go."""
    place = look(bucket, claim.name)
    if place is None or place.attempt != claim.token:
        return 0 if place is None else empty_token(bucket, claim.token)
    thrown = {item.key.rpartition("/")[2] for item in bucket.list(f"{TRASH}/{claim.token}")} - {MANIFEST}
    return _remove(bucket, claim.name, files, [stored for stored in files if stored in thrown])


def _bury_restore(bucket: Bucket, claim: LeaseRecord, files: dict[str, ObjectMeta]) -> int:
    """If it was brought back, what is in the trash goes; if not, the copies beside no manifest go."""
    try:
        thrown = bucket.get(trash_key(claim.token, MANIFEST))
    except KeyMissing:
        return 0
    place = find(bucket, claim.name)
    if place is not None and place.data == thrown.data:
        return empty_token(bucket, claim.token)
    copies = {item.key.rpartition("/")[2] for item in bucket.list(f"{TRASH}/{claim.token}")} - {MANIFEST}
    needed = _needed(place)
    return _remove(bucket, claim.name, files, [s for s in files if s in copies and s not in needed])


def _needed(place: CurrentManifest | None) -> frozenset[str]:
    """Stored files a checkpoint needs, its manifest included."""
    if place is None:
        return frozenset({MANIFEST})
    listed = place.listed() or frozenset()
    return frozenset({MANIFEST, *listed, *(f"{file}~{place.home}" for file in listed)})


def _remove(bucket: Bucket, name: str, files: dict[str, ObjectMeta], stored: Iterable[str]) -> int:
    doomed = list(stored)
    in_parallel(bucket.delete, [file_key(name, file) for file in doomed])
    return sum(files[file].size for file in doomed)


def _clear_orphans(bucket: Bucket, survey: _Survey, graces: Graces) -> int:
    """Remove what no lease speaks for: puts that arrived after their attempt was buried, forgotten uploads, marks."""
    grace, nbytes = max(graces.foreign, bucket.term), 0
    busy = {claim.name for claim in (*survey.alive.values(), *survey.dead.values()) if claim is not None}
    for name, files in survey.folders.items():
        old = [stored for stored, item in files.items() if survey.age(item.modified) >= grace]
        if name not in busy and old:
            nbytes += _clear_folder(bucket, name, files, old)
    for upload in survey.uploads:
        name = upload.key.removeprefix(f"{CHECKPOINTS}/").partition("/")[0]
        if name not in busy and survey.age(upload.begun) >= grace:
            abort_upload(bucket, upload)
    for item in bucket.list(STAGING):
        if item.key.endswith(CLOCK) and survey.age(item.modified) >= bucket.term:
            bucket.delete(item.key)
    return nbytes


def _clear_folder(bucket: Bucket, name: str, files: dict[str, ObjectMeta], old: list[str]) -> int:
    place = look(bucket, name)
    if place is not None and place.published:
        if place.listed() is None:
            return 0
        needed, home = _needed(place), place.home
        return _remove(bucket, name, files, [s for s in old if s not in needed and _is_stray(s, home)])
    nbytes = _remove(bucket, name, files, [stored for stored in old if stored != MANIFEST])
    if place is not None and set(files) <= set(old):
        remove_mark(bucket, manifest_key(name), place.version)
    return nbytes


def _is_stray(stored: str, home: str) -> bool:
    """Whether a file that no manifest lists was made by an attempt, and not put beside the checkpoint by a person."""
    return plain_name(stored, home) is None or ("~" not in stored and has_random_id(stored))
