"""Object recovery: recovery. Removes what dead attempts left, stale uploads, and trash past its grace.

Never rolls forward, and never removes what a manifest in place needs. Safe to run at any time, from any number of
processes, and to be killed at any request: a lease goes last. All ages are by the store's own clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.names import TrashToken, is_name
from model_checkpoint.storage.contract.store import Swept, Tell, Waiting, nobody
from model_checkpoint.storage.objects import copied_trash, trash
from model_checkpoint.storage.objects.folder import Folder, FolderState, list_folders, steady_state
from model_checkpoint.storage.objects.leases import LeaseRecord, leases, read_claim, seconds_left, store_time
from model_checkpoint.storage.objects.requests.bucket import Bucket, ObjectMeta, log
from model_checkpoint.storage.objects.requests.keys import (
    CHECKPOINTS,
    CLOCK,
    STAGING,
    VERDICT,
    file_key,
    is_of,
    lease_key,
    manifest_key,
    plain_name,
    random_ids,
)
from model_checkpoint.storage.objects.requests.parallel import in_parallel
from model_checkpoint.storage.objects.requests.signed_requests import Upload, abort_upload, list_uploads, remove_mark


@dataclass(slots=True)
class _Survey:
    """What was found, in an order in which nothing alive can look dead: files, then leases."""

    folders: dict[str, Folder]
    uploads: list[Upload]
    now: datetime
    alive: dict[str, LeaseRecord | None] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    dead: dict[str, LeaseRecord] = field(default_factory=dict)

    def age(self, moment: datetime | None) -> float:
        """Seconds since then; none of what has no time or one in the future."""
        return 0.0 if moment is None else max(0.0, (self.now - moment).total_seconds())

    def leave(self, attempt: str, claim: LeaseRecord | None, seconds: float | None) -> None:
        """It may be alive, for so long at least."""
        self.alive[attempt] = claim
        self.waiting.append(Waiting(key=attempt, seconds=seconds))


def sweep(bucket: Bucket, graces: Graces, tell: Tell = nobody) -> Swept:
    """Remove leavings; see :meth:`model_checkpoint.storage.contract.store.Store.sweep`."""
    if bucket.is_empty():
        return Swept()
    survey = _look_around(bucket, graces)
    nbytes = 0
    for attempt, claim in survey.dead.items():
        nbytes += _bury(bucket, attempt, claim, survey)
        tell(attempt)
    trashed, purged = _purge(bucket, survey, graces, tell)
    nbytes += purged + _clear_orphans(bucket, survey, graces)
    moments = trash.moments(survey.folders) | copied_trash.moments(bucket)
    left = [Waiting(key=key, seconds=graces.of_trash(key) - survey.age(moment)) for key, moment in moments.items()]
    swept = Swept(
        attempts=sorted(survey.dead),
        trashed=trashed,
        alive=sorted(survey.alive),
        nbytes=nbytes,
        waiting=[*survey.waiting, *(one for one in left if one.key not in trashed)],
    )
    if swept.attempts or swept.trashed:
        log.info(
            "%s: removed %d dead attempts and %d deleted checkpoints, %d bytes",
            bucket.address.url,
            len(swept.attempts),
            len(swept.trashed),
            swept.nbytes,
        )
    return swept


def foresee(bucket: Bucket, graces: Graces) -> Swept:
    """What :func:`sweep` would remove, apart from strays that no lease and no deletion speaks for."""
    if bucket.is_empty():
        return Swept()
    survey = _look_around(bucket, graces)
    moments = trash.moments(survey.folders) | copied_trash.moments(bucket)
    left = {key: graces.of_trash(key) - survey.age(moment) for key, moment in moments.items()}
    over = sorted(key for key, seconds in left.items() if seconds <= 0)
    sizes = {item.token: item.nbytes for item in trash.contents(bucket)}
    waiting = [Waiting(key=key, seconds=seconds) for key, seconds in left.items() if seconds > 0]
    staged = sum(_weigh(bucket, claim) for claim in survey.dead.values())
    return Swept(
        attempts=sorted(survey.dead),
        trashed=over,
        alive=sorted(survey.alive),
        nbytes=staged + sum(sizes.get(key, 0) for key in over),
        waiting=[*survey.waiting, *waiting],
    )


def _weigh(bucket: Bucket, claim: LeaseRecord) -> int:
    """Bytes that a dead attempt has left."""
    state = steady_state(bucket, claim.name) if is_name(claim.name) else None
    return 0 if state is None else sum(state.folder.files[stored].size for stored in _leavings(claim, state))


def _purge(bucket: Bucket, survey: _Survey, graces: Graces, tell: Tell) -> tuple[list[str], int]:
    """Remove deletions past their grace."""

    def is_over(token: str, deleted: datetime) -> bool:
        return survey.age(deleted) >= graces.of_trash(token)

    purged, nbytes = trash.purge(bucket, survey.folders, is_over, tell)
    copied, copies = copied_trash.purge(bucket, is_over, tell)
    return [*copied, *purged], nbytes + copies


def _look_around(bucket: Bucket, graces: Graces) -> _Survey:
    survey = _Survey(list_folders(bucket), list_uploads(bucket, CHECKPOINTS), store_time(bucket))
    for attempt, item in leases(bucket).items():
        claim = read_claim(bucket, item.key)
        if claim is None or claim.attempt != attempt:  # nobody can tell how long it will be
            survey.leave(attempt, claim, None)
            continue
        left = seconds_left(claim, survey.age(item.modified), graces, term=bucket.term)
        if left is not None and left <= 0:
            survey.dead[attempt] = claim
        else:
            survey.leave(attempt, claim, left)
    return survey


def _bury(bucket: Bucket, attempt: str, claim: LeaseRecord, survey: _Survey) -> int:
    """Remove all traces of a dead attempt, its lease last."""
    state = steady_state(bucket, claim.name) if is_name(claim.name) else None
    if state is None and is_name(claim.name):
        return 0
    nbytes = _remove(bucket, state, _leavings(claim, state)) if state is not None else 0
    for upload in survey.uploads:
        if is_of(upload.key.rpartition("/")[2], attempt):
            abort_upload(bucket, upload)
    bucket.delete(lease_key(attempt))
    return nbytes


def _leavings(claim: LeaseRecord, state: FolderState) -> list[str]:
    """Its own files, unless it came to be the checkpoint, or was and may come back."""
    needed = state.needed()
    return [stored for stored in state.folder.files if is_of(stored, claim.attempt) and stored not in needed]


def _remove(bucket: Bucket, state: FolderState, stored: Iterable[str]) -> int:
    doomed: dict[str, ObjectMeta] = {file: state.folder.files[file] for file in stored}
    in_parallel(bucket.delete, [file_key(state.folder.name, file) for file in doomed])
    return sum(item.size for item in doomed.values())


def _clear_orphans(bucket: Bucket, survey: _Survey, graces: Graces) -> int:
    """Remove what no lease speaks for: puts that arrived after their attempt was buried, forgotten uploads, marks."""
    grace, nbytes = max(graces.foreign, bucket.term), 0
    busy = {claim.name for claim in (*survey.alive.values(), *survey.dead.values()) if claim is not None}
    for name, folder in survey.folders.items():
        old = {stored for stored, item in folder.files.items() if survey.age(item.modified) >= grace}
        is_mark = not folder.published and folder.manifest is not None and survey.age(folder.manifest.modified) >= grace
        if name not in busy and (is_mark or (old and _may_hold_strays(folder))):
            nbytes += _clear_folder(bucket, name, old)
    for upload in survey.uploads:
        name = upload.key.removeprefix(f"{CHECKPOINTS}/").partition("/")[0]
        if name not in busy and survey.age(upload.begun) >= grace:
            abort_upload(bucket, upload)
    for item in bucket.list(STAGING):
        age = survey.age(item.modified)
        idle = item.key.endswith(VERDICT) and age >= grace and not _holds_back(survey, item.key)
        if idle or (item.key.endswith(CLOCK) and age >= bucket.term):
            bucket.delete(item.key)
    return nbytes


def _holds_back(survey: _Survey, verdict: str) -> bool:
    """Whether it is about the deletion of a checkpoint that is there: who was stopped in that may go on at any time."""
    token = TrashToken.find(verdict.removeprefix(f"{STAGING}/").removesuffix(VERDICT))
    folder = survey.folders.get(token.name) if token is not None else None
    return folder is not None and folder.published


def _may_hold_strays(folder: Folder) -> bool:
    """Whether a listing leaves it open that some file belongs to no version: most folders hold files of one attempt."""
    ids = {one for stored in folder.files for one in random_ids(stored)}
    return not folder.published or len(ids) > 1 or any("~" in stored for stored in folder.files)


def _clear_folder(bucket: Bucket, name: str, old: set[str]) -> int:
    state = steady_state(bucket, name)
    if state is None:
        return 0
    place, needed = state.place, state.needed()
    loose = [stored for stored in state.folder.files if stored in old and stored not in needed]
    if place is not None and place.published:
        if place.listed() is None:
            return 0
        return _remove(bucket, state, [stored for stored in loose if _is_stray(stored, place.home)])
    nbytes = _remove(bucket, state, loose)
    if place is not None and not state.folder.deletions and len(loose) == len(state.folder.files):
        remove_mark(bucket, manifest_key(name), place.version)
    return nbytes


def _is_stray(stored: str, home: str) -> bool:
    """Whether a file that no manifest lists was made by an attempt, and not put beside the checkpoint by a person."""
    return plain_name(stored, home) is None or ("~" not in stored and bool(random_ids(stored)))
