"""Object copied trash: copies below ``.trash``: of files that a repair replaced, and deletions of earlier versions.

Such deletions are made no more; those that are there can be brought back until their grace ends, and go then. What a
repair replaced has no manifest beside it, so it only goes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import datetime

from model_checkpoint.storage.contract.names import MANIFEST, TrashToken
from model_checkpoint.storage.contract.store import Tell, Trashed, nobody
from model_checkpoint.storage.objects.requests.bucket import Bucket, ObjectMeta
from model_checkpoint.storage.objects.requests.keys import TRASH, file_key
from model_checkpoint.storage.objects.requests.parallel import in_parallel


def trash_key(token: TrashToken | str, stored: str) -> str:
    """The key of the copy of a file."""
    return f"{TRASH}/{token}/{stored}"


def _folders(bucket: Bucket) -> dict[str, list[ObjectMeta]]:
    folders: dict[str, list[ObjectMeta]] = defaultdict(list)
    for item in bucket.list(TRASH):
        token, slash, _ = item.key.removeprefix(f"{TRASH}/").partition("/")
        if slash and TrashToken.find(token):
            folders[token].append(item)
    return folders


def contents(bucket: Bucket) -> dict[str, list[Trashed]]:
    """What can be brought back, by name, in the order of deletion."""
    found: dict[str, list[Trashed]] = defaultdict(list)
    for text, items in sorted(_folders(bucket).items(), key=lambda one: TrashToken.parse(one[0]).nanoseconds):
        if any(item.key == trash_key(text, MANIFEST) for item in items):
            name, nbytes = TrashToken.parse(text).name, sum(item.size for item in items)
            deleted = float(int(max(item.modified for item in items).timestamp()))
            found[name].append(Trashed(name=name, token=text, deleted=deleted, nbytes=nbytes))
    return found


def copy_back(bucket: Bucket, token: TrashToken) -> None:
    """Copy the files to where they were; without a manifest beside them recovery removes them in time."""
    folder = f"{TRASH}/{token}/"
    stored = [item.key.removeprefix(folder) for item in bucket.list(f"{TRASH}/{token}")]
    in_parallel(
        lambda file: bucket.copy(trash_key(token, file), file_key(token.name, file)),
        [file for file in stored if file != MANIFEST],
    )


def empty(bucket: Bucket, token: str) -> int:
    """Remove the copies of one deletion, its manifest first, so that nobody brings back a half; return their bytes."""
    items = bucket.list(f"{TRASH}/{token}")
    bucket.delete(trash_key(token, MANIFEST))
    in_parallel(bucket.delete, [item.key for item in items if item.key != trash_key(token, MANIFEST)])
    return sum(item.size for item in items)


def moments(bucket: Bucket) -> dict[str, datetime]:
    """When each was deleted, by token."""
    return {token: max(item.modified for item in items) for token, items in _folders(bucket).items()}


def purge(bucket: Bucket, is_over: Callable[[str, datetime], bool], tell: Tell = nobody) -> tuple[list[str], int]:
    """Remove every deletion for whose token and moment ``is_over`` holds; return the tokens and the bytes."""
    over, nbytes = [token for token, deleted in moments(bucket).items() if is_over(token, deleted)], 0
    for token in over:
        nbytes += empty(bucket, token)
        tell(token)
    return over, nbytes
