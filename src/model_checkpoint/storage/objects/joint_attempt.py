"""Joint attempt: one attempt that many ranks write to in an object store, and the one object that decides about it.

Below the leases there is one key for the verdict, and whoever puts it first decides: rank 0 puts the manifest it is
about to publish there, whoever loses patience the word that nothing is to be published. Both puts are create-only, so
exactly one arrives. Who finds a manifest there, and not in place, puts it in place: it was decided.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

import msgspec

from model_checkpoint.errors import CheckpointException, RootNotShared, StepExists, StorageFailure
from model_checkpoint.storage.contract.failures import attempt_over
from model_checkpoint.storage.contract.store import FileStat
from model_checkpoint.storage.objects.attempt import ObjectAttempt
from model_checkpoint.storage.objects.commit import GIVEN_UP, ManifestPut, commit, decide, find
from model_checkpoint.storage.objects.folder import list_folder
from model_checkpoint.storage.objects.leases import read_claim
from model_checkpoint.storage.objects.reader import ObjectReader, gone
from model_checkpoint.storage.objects.requests.bucket import Bucket, ObjectMeta, log
from model_checkpoint.storage.objects.requests.failures import ConditionFailed, KeyMissing
from model_checkpoint.storage.objects.requests.keys import file_key, is_of, lease_key, stored_name, verdict_key
from model_checkpoint.storage.objects.requests.parallel import in_parallel
from model_checkpoint.storage.objects.writer import Buffers, stamp_of

_TRIES = 16


class AttemptVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What rank 0 has decided to publish."""

    manifest: bytes
    replace: bool
    whole: bool = False  # whether no file of an older version belongs to it


_VERDICTS = msgspec.msgpack.Decoder(AttemptVerdict)  # made once: msgspec crashes where two threads meet a class first


class JointObjectAttempt(ObjectAttempt):
    """The attempt of rank 0: its files are all that carry its id, whoever wrote them."""

    def stamps(self) -> dict[str, FileStat]:
        """Stamps of all files of the attempt that are in the store."""
        return {stored.partition("~")[0]: stamp_of(item) for stored, item in self._stored().items()}

    def flush(self) -> None:
        """Nothing to do: an object that was put is there."""

    def open(self, file: str) -> ObjectReader:
        """Open a file of the attempt."""
        self._require_open()
        key = file_key(self._name, stored_name(file, self._attempt))
        try:
            size = self._bucket.head(key).size
        except KeyMissing:
            raise gone(self._where, file) from None
        return ObjectReader(self._bucket, key, size=size, where=self._where, file=file)

    def drop(self, files: Sequence[str]) -> None:
        """Remove files of the attempt."""
        self._require_open()
        in_parallel(self._bucket.delete, [file_key(self._name, stored_name(file, self._attempt)) for file in files])
        for file in files:
            self._writers.pop(file, None)

    def publish(self, manifest: bytes, *, replace: bool = False, obsolete: Sequence[str] = ()) -> None:
        """Decide, unless the others have decided already, then make the checkpoint visible."""
        self._require_open()
        decided = msgspec.msgpack.encode(AttemptVerdict(manifest=bytes(manifest), replace=replace, whole=self._whole))
        if decide(self._bucket, self._attempt, decided) != decided:
            raise StorageFailure(
                f"{self._where}: other ranks have given this attempt up. Begin a new one.",
                self._where,
                code=errno.ENOENT,
            )
        super().publish(manifest, replace=replace, obsolete=obsolete)
        try:
            self._bucket.delete(verdict_key(self._attempt))
        except CheckpointException as error:
            log.warning("%s: its verdict stays until the next recovery (%s)", self._where, error)

    def abort(self) -> None:
        """Remove what is there; what other ranks are still uploading is left to recovery, with the lease."""
        if not self._stop():
            return
        try:
            in_parallel(self._bucket.delete, [file_key(self._name, stored) for stored in self._stored()])
        except CheckpointException as error:
            log.warning("%s: leavings stay until the next recovery (%s)", self._where, error)
        self._lease.leave()

    def _stored(self) -> dict[str, ObjectMeta]:
        """All that carries the id of the attempt."""
        folder = list_folder(self._bucket, self._name)
        return {stored: item for stored, item in folder.files.items() if is_of(stored, self._attempt)}


class JoinedObjectAttempt(JointObjectAttempt):
    """The attempt as another rank sees it; what becomes of it is not for this rank to decide alone."""

    def __init__(self, bucket: Bucket, name: str, attempt: str, *, buffers: Buffers) -> None:
        self._begin(bucket, name, attempt, buffers=buffers)
        claim = read_claim(bucket, lease_key(attempt))
        if claim is None or claim.name != name:
            raise RootNotShared(
                f"{self._where}: rank 0 has begun to save this, but nothing of that is to be seen from this rank, so "
                "the ranks do not write to the same bucket. Check endpoint, bucket and prefix on all machines.",
                self._where,
            )

    def stamps(self) -> dict[str, FileStat]:
        """Stamps of the files this rank has written."""
        return ObjectAttempt.stamps(self)

    def publish(self, manifest: bytes, *, replace: bool = False, obsolete: object = ()) -> None:
        """Refused: rank 0 publishes."""
        raise attempt_over(self._where)

    def abort(self) -> None:
        """Close what is open; the files are removed by whoever clears up behind rank 0."""
        self._stop()


def settle(bucket: Bucket, name: str, attempt: str) -> bool:
    """End an attempt for good; see :meth:`model_checkpoint.storage.contract.shared.SharedStore.settle`."""
    if _is_in_place(bucket, name, attempt):
        return True
    decided = decide(bucket, attempt, GIVEN_UP)
    if decided == GIVEN_UP:
        return _is_in_place(bucket, name, attempt)  # a verdict that was carried out meanwhile is gone by now
    verdict = _VERDICTS.decode(decided)
    for _ in range(_TRIES):
        found = find(bucket, name)
        if found is not None and found.attempt == attempt:
            return True
        home = found.home if found is not None and not verdict.whole else attempt
        draft = ManifestPut(data=verdict.manifest, attempt=attempt, home=home)
        try:
            commit(bucket, name, draft, over=found if verdict.replace else None)
        except StepExists:
            return False  # somebody else has the name: rank 0 finds the same
        except ConditionFailed:
            continue
        return True
    where = bucket.where(f"checkpoints/{name}")
    raise StorageFailure(f"{where}: something keeps changing it. Let one process at a time write it.", where)


def _is_in_place(bucket: Bucket, name: str, attempt: str) -> bool:
    found = find(bucket, name)
    return found is not None and found.attempt == attempt
