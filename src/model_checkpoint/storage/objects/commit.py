"""Object commit: one conditional put of the manifest makes, replaces or deletes a checkpoint.

A new checkpoint is a create-only put; a replacement or a deletion is a put over exactly the version that was read.
When an answer is lost, the manifest in place decides, by the attempt id kept with it. A failure that might still arrive
late is fenced off by a manifest of no bytes; where that cannot be, the outcome is called unknown.

What many ranks do together is decided before, by a create-only put of a verdict: whoever puts it first has decided.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from model_checkpoint.errors import CheckpointException, PermissionRefused, StorageFailure
from model_checkpoint.manifest import Summary, decode_summary
from model_checkpoint.storage.contract.failures import name_taken
from model_checkpoint.storage.contract.names import MANIFEST
from model_checkpoint.storage.objects.requests.bucket import Bucket, Condition, FetchedObject, log
from model_checkpoint.storage.objects.requests.failures import ConditionFailed, KeyMissing, undecided
from model_checkpoint.storage.objects.requests.keys import manifest_key, verdict_key

_TRIES = 16
GIVEN_UP = b""  # the verdict that nothing is to be published, or deleted
_DOUBTS = 3  # on top of what obstore repeats itself
_REFUSALS = (ConditionFailed, KeyMissing)
_ATTEMPT, _HOME = "mckptattempt", "mckpthome"  # letters only: some stores allow no more


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPut:
    """A manifest on its way: no bytes delete the checkpoint."""

    data: bytes
    attempt: str  # whose it is
    home: str  # the attempt whose ``<file>~<attempt>`` files belong to the checkpoint

    @property
    def remarks(self) -> Mapping[str, str]:
        """What is kept with the object."""
        return {_ATTEMPT: self.attempt, _HOME: self.home}


def put_of(found: FetchedObject) -> ManifestPut:
    """A manifest to be put again as it was."""
    return ManifestPut(data=found.data, attempt=found.remarks.get(_ATTEMPT, ""), home=found.remarks.get(_HOME, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentManifest:
    """The manifest, or the mark of a deletion, that a name has now."""

    data: bytes
    version: Mapping[str, str]
    attempt: str
    home: str

    @property
    def published(self) -> bool:
        """Whether it is a checkpoint."""
        return bool(self.data)

    @property
    def identity(self) -> str:
        """Which version of the checkpoint it is."""
        return self.attempt or hashlib.sha256(self.data).hexdigest()

    def summary(self) -> Summary | None:
        """What the manifest says; None if that cannot be read."""
        try:
            return decode_summary(self.data, MANIFEST)
        except CheckpointException:
            return None

    def listed(self) -> frozenset[str] | None:
        """Every file the manifest needs; None if it cannot be read."""
        summary = self.summary()
        return None if summary is None else frozenset(summary.file_names)


def look(bucket: Bucket, name: str) -> CurrentManifest | None:
    """What ``name`` has now; None if it never had anything."""
    try:
        found = bucket.get(manifest_key(name))
    except KeyMissing:
        return None
    attempt, home = found.remarks.get(_ATTEMPT, ""), found.remarks.get(_HOME, "")
    place = CurrentManifest(data=found.data, version=found.version, attempt=attempt, home=home)
    if attempt or not found.data:
        return place
    summary = place.summary()  # a store that dropped the remarks, or a manifest copied there by other means
    own = summary.attempt if summary is not None else ""
    return CurrentManifest(data=found.data, version=found.version, attempt=own, home=own)


def find(bucket: Bucket, name: str) -> CurrentManifest | None:
    """The checkpoint ``name``; None if there is none."""
    place = look(bucket, name)
    return place if place is not None and place.published else None


def commit(bucket: Bucket, name: str, draft: ManifestPut, *, over: CurrentManifest | None = None) -> None:
    """Put ``draft`` in place of nothing (or the mark of a deletion), or of exactly ``over``.

    Raises:
        StepExists: without ``over``, the name is taken.
        ConditionFailed: ``over`` is no longer what is there.
        DurabilityUnknown: the answer was lost and could not be found out.
    """
    where, doubts = bucket.where(f"checkpoints/{name}"), 0
    condition: Condition = over.version if over is not None else None
    for _ in range(_TRIES):
        failure = _try(bucket, name, draft, condition)
        if failure is None:
            return None
        place = _look_after(bucket, name, failure, where)
        if place is not None and place.attempt == draft.attempt and place.data == draft.data:
            log.warning("%s: the answer to its commit was lost, but it is in place", where)
            return None
        if over is not None:
            _require_same(over, place, failure)
        elif place is not None and place.published:
            raise name_taken(where)
        if over is None:
            condition = place.version if place is not None else None
        doubts += not isinstance(failure, _REFUSALS)
        if doubts >= _DOUBTS:
            return _fence(bucket, name, draft, condition, failure)
    raise StorageFailure(f"{where}: something keeps changing it. Let one process at a time write it.", where)


def _try(bucket: Bucket, name: str, draft: ManifestPut, condition: Condition) -> StorageFailure | None:
    try:
        bucket.put_if(manifest_key(name), draft.data, condition, remarks=draft.remarks)
    except PermissionRefused:
        raise
    except StorageFailure as error:
        return error
    return None


def _look_after(bucket: Bucket, name: str, failure: StorageFailure, where: str) -> CurrentManifest | None:
    """What is in place after a put went wrong; if that cannot be read either, nobody knows."""
    try:
        return look(bucket, name)
    except StorageFailure:
        if isinstance(failure, _REFUSALS):
            raise  # it was refused, so nothing of ours is there
        raise undecided(where, failure) from failure


def _require_same(over: CurrentManifest, place: CurrentManifest | None, failure: StorageFailure) -> None:
    """Raise unless the version to be replaced is still there."""
    if place is None or place.version != over.version or isinstance(failure, _REFUSALS):
        raise ConditionFailed(failure.message, failure.checkpoint_path) from None


def _fence(bucket: Bucket, name: str, draft: ManifestPut, condition: Condition, failure: StorageFailure) -> None:
    """Make sure that a put that failed can no longer arrive, then raise its failure; or say that nobody knows."""
    where = bucket.where(f"checkpoints/{name}")
    if condition is not None:
        raise undecided(where, failure)
    try:
        bucket.put_if(manifest_key(name), b"", None, remarks={_ATTEMPT: f"not-{draft.attempt}"})
    except StorageFailure as error:
        place = _look_after(bucket, name, failure, where)
        if place is not None and place.attempt == f"not-{draft.attempt}":
            raise failure from None
        if place is not None and place.attempt == draft.attempt:
            return
        raise undecided(where, failure) from error
    raise failure


def decide(bucket: Bucket, attempt: str, word: bytes) -> bytes:
    """Put a verdict unless there is one; return the one that is there. A lost answer is asked for again.

    One that was carried out goes: who finds that, and puts another, must look whether anything is left to decide.
    """
    for _ in range(_TRIES):
        try:
            bucket.put_if(verdict_key(attempt), word, None)
        except StorageFailure:
            try:
                return bytes(bucket.get(verdict_key(attempt)).data)
            except KeyMissing:
                continue
        return word
    where = bucket.where(verdict_key(attempt))
    raise StorageFailure(f"{where}: no verdict could be put there. Check the object store, then try again.", where)
