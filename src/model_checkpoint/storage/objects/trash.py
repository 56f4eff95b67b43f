"""Object trash: deleted checkpoints wait here until their grace ends, and can be brought back until then.

There is no rename, so files are copied within the store. A deletion copies first, then switches the manifest to no
bytes, then removes; bringing back copies first, then puts the manifest, then removes. Each holds a lease meanwhile, so
that recovery can tell how far it came.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from model_checkpoint.errors import CheckpointException, CheckpointNotFound, StorageFailure
from model_checkpoint.storage.contract.failures import name_taken_again, no_such_checkpoint, not_in_trash
from model_checkpoint.storage.contract.names import MANIFEST, TrashToken
from model_checkpoint.storage.contract.store import Trashed
from model_checkpoint.storage.objects.bucket import Bucket, ObjectMeta, log
from model_checkpoint.storage.objects.commit import CurrentManifest, ManifestPut, commit, find, put_of
from model_checkpoint.storage.objects.failures import ConditionFailed, KeyMissing
from model_checkpoint.storage.objects.keys import (
    CHECKPOINTS,
    TRASH,
    file_key,
    is_of,
    manifest_key,
    plain_name,
    trash_key,
)
from model_checkpoint.storage.objects.leases import Lease, LeaseKind, leases, read_claim

_TRIES = 16
_AT_ONCE = 8


def in_parallel(work: Callable[[str], None], keys: Iterable[str]) -> None:
    """Run small requests a few at a time; raise the first failure, after all have ended."""
    todo = list(keys)
    if len(todo) < 2:
        for key in todo:
            work(key)
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(todo)), thread_name_prefix="mckpt-objects") as pool:
        for done in [pool.submit(work, key) for key in todo]:
            done.result()


def stored_files(bucket: Bucket, name: str, home: str) -> dict[str, ObjectMeta]:
    """Every stored file of a published checkpoint, without its manifest and without what attempts at work put there.

    The files are listed before the leases: an attempt has its lease before its first file.
    """
    folder = f"{CHECKPOINTS}/{name}/"
    found = {item.key.removeprefix(folder): item for item in bucket.list(f"{CHECKPOINTS}/{name}")}
    at_work = [attempt for attempt in leases(bucket) if any(is_of(stored, attempt) for stored in found)]
    place = find(bucket, name) if at_work else None
    strangers = [attempt for attempt in at_work if place is None or attempt != place.attempt]
    return {
        stored: item
        for stored, item in found.items()
        if stored != MANIFEST
        and plain_name(stored, home) is not None
        and not any(is_of(stored, attempt) for attempt in strangers)
    }


def discard(bucket: Bucket, name: str) -> Trashed:
    """Move a published checkpoint to the trash."""
    token = TrashToken.fresh(name)
    lease = Lease(
        bucket, LeaseKind.DISCARD, attempt=f"{secrets.token_hex(12)}{token.salt[:8]}", name=name, token=str(token)
    )
    try:
        found, files = _throw(bucket, token)
    except CheckpointNotFound:
        lease.release()
        raise
    except BaseException:
        lease.leave()  # recovery finds out how far it came
        raise
    _finish(bucket, lease, lambda: in_parallel(bucket.delete, [file_key(name, stored) for stored in files]))
    nbytes = len(found.data) + sum(item.size for item in files.values())
    return Trashed(name=name, token=str(token), deleted=token.deleted, nbytes=nbytes)


def _throw(bucket: Bucket, token: TrashToken) -> tuple[CurrentManifest, dict[str, ObjectMeta]]:
    """Copy a checkpoint to the trash and switch its manifest off; return what it was."""
    name = token.name
    for _ in range(_TRIES):
        found = find(bucket, name)
        if found is None:
            raise no_such_checkpoint(bucket.where(f"{CHECKPOINTS}/{name}"), bucket.address.url)
        files = stored_files(bucket, name, found.home)
        in_parallel(lambda stored: bucket.copy(file_key(name, stored), trash_key(token, stored)), files)
        # no byte of the manifest passes through here, so none can be spoiled on the way
        bucket.copy(manifest_key(name), trash_key(token, MANIFEST))
        try:
            commit(bucket, name, ManifestPut(data=b"", attempt=str(token), home=found.home), over=found)
        except ConditionFailed:
            empty_token(bucket, str(token))  # it was replaced meanwhile: throw away what is there now
        else:
            return found, files
    where = bucket.where(f"{CHECKPOINTS}/{name}")
    raise StorageFailure(f"{where}: is being replaced all the time. Stop that, then delete it.", where)


def _finish(bucket: Bucket, lease: Lease, remove: Callable[[], object]) -> None:
    """Remove what is no longer needed behind a commit; what fails is left to recovery, and so is the lease then."""
    try:
        remove()
    except CheckpointException as error:
        log.warning("%s: leavings stay until the next recovery (%s)", bucket.address.url, error)
        lease.leave()
    else:
        lease.release()


def trash_folders(bucket: Bucket) -> dict[str, list[ObjectMeta]]:
    """Everything in the trash, by token."""
    folders: dict[str, list[ObjectMeta]] = defaultdict(list)
    for item in bucket.list(TRASH):
        token, slash, _ = item.key.removeprefix(f"{TRASH}/").partition("/")
        if slash and TrashToken.find(token):
            folders[token].append(item)
    return folders


def contents(bucket: Bucket) -> list[Trashed]:
    """What can be brought back, oldest first."""
    found = [
        Trashed(
            name=TrashToken.parse(token).name,
            token=token,
            deleted=TrashToken.parse(token).deleted,
            nbytes=sum(item.size for item in items),
        )
        for token, items in trash_folders(bucket).items()
        if any(item.key == trash_key(token, MANIFEST) for item in items)
    ]
    return sorted(found, key=lambda item: item.deleted)


def read(bucket: Bucket, text: str) -> bytes:
    """The manifest of what lies in the trash under a token."""
    return _thrown_manifest(bucket, TrashToken.parse(text, bucket.where(TRASH))).data


def bring_back(bucket: Bucket, text: str) -> str:
    """Undo a discard; return the name."""
    token = TrashToken.parse(text, bucket.where(TRASH))
    _require_finished(bucket, token)
    draft = _thrown_manifest(bucket, token)
    if find(bucket, token.name) is not None:
        raise name_taken_again(bucket.where(f"{CHECKPOINTS}/{token.name}"))
    lease = Lease(bucket, LeaseKind.RESTORE, attempt=secrets.token_hex(16), name=token.name, token=str(token))
    try:
        _copy_back(bucket, token)
        commit(bucket, token.name, draft)
    except BaseException:
        lease.leave()  # recovery finds out how far it came
        raise
    _finish(bucket, lease, lambda: empty_token(bucket, str(token)))
    return token.name


def _thrown_manifest(bucket: Bucket, token: TrashToken) -> ManifestPut:
    """The manifest of what was deleted, read twice: it is put again as it was read, so it must have been read well."""
    where = bucket.where(f"{TRASH}/{token}")
    try:
        first, second = (bucket.get(trash_key(token, MANIFEST)) for _ in range(2))
    except KeyMissing:
        raise not_in_trash(where, bucket.address.url) from None
    if first.data != second.data:
        raise StorageFailure(f"{where}: its manifest reads differently each time. Check the network, try again.", where)
    return put_of(first)


def _require_finished(bucket: Bucket, token: TrashToken) -> None:
    """Refuse what a deletion still works on: it would remove the files as they come back."""
    for attempt in leases(bucket):
        if not attempt.endswith(token.salt[:8]):
            continue
        claim = read_claim(bucket, f".staging/{attempt}.lease")
        if claim is not None and claim.token == str(token):
            where = bucket.where(f"{TRASH}/{token}")
            raise StorageFailure(
                f"{where}: its deletion is not finished. Try again in a moment; if it never ends, run `mckpt gc`.",
                where,
            )


def _copy_back(bucket: Bucket, token: TrashToken) -> None:
    folder = f"{TRASH}/{token}/"
    stored = [item.key.removeprefix(folder) for item in bucket.list(f"{TRASH}/{token}")]
    in_parallel(
        lambda file: bucket.copy(trash_key(token, file), file_key(token.name, file)),
        [file for file in stored if file != MANIFEST],
    )


def throw_files(bucket: Bucket, name: str, stored: Sequence[str]) -> None:
    """Move single files of ``name`` to the trash, without a manifest; those already gone are no error."""
    token = TrashToken.fresh(name)

    def throw(file: str) -> None:
        try:
            bucket.copy(file_key(name, file), trash_key(token, file))
        except KeyMissing:
            log.debug("%s/%s: gone already", name, file)
        bucket.delete(file_key(name, file))

    in_parallel(throw, stored)


def empty_token(bucket: Bucket, token: str) -> int:
    """Remove one folder of the trash, its manifest first, so that nobody brings back a half; return its bytes."""
    items = bucket.list(f"{TRASH}/{token}")
    bucket.delete(trash_key(token, MANIFEST))
    in_parallel(bucket.delete, [item.key for item in items if item.key != trash_key(token, MANIFEST)])
    return sum(item.size for item in items)


def purge(bucket: Bucket, now: datetime, grace: float, *, busy: frozenset[str]) -> tuple[list[str], int]:
    """Remove what has been in the trash for longer than ``grace`` seconds by the store's clock."""
    gone: list[str] = []
    nbytes = 0
    for token, items in trash_folders(bucket).items():
        age = (now - max(item.modified for item in items)).total_seconds()
        if token not in busy and max(age, 0.0) >= grace:  # it may have come while we looked around
            nbytes += empty_token(bucket, token)
            gone.append(token)
    return gone, nbytes
