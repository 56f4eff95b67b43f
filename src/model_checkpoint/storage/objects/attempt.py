"""Object attempt: one attempt to save, from its lease to its publication."""

from __future__ import annotations

from collections.abc import Sequence

from model_checkpoint.errors import CheckpointException, DurabilityUnknown, StepExists, StorageFailure
from model_checkpoint.storage.contract.ending import EndingAttempt
from model_checkpoint.storage.contract.failures import attempt_over, misused, require_sealed
from model_checkpoint.storage.contract.names import MANIFEST, check_name, check_new_file
from model_checkpoint.storage.contract.store import FileStat
from model_checkpoint.storage.objects.commit import CurrentManifest, ManifestPut, commit, find
from model_checkpoint.storage.objects.folder import files_of
from model_checkpoint.storage.objects.leases import Lease
from model_checkpoint.storage.objects.requests.bucket import Bucket, log
from model_checkpoint.storage.objects.requests.failures import ConditionFailed, KeyMissing
from model_checkpoint.storage.objects.requests.keys import CHECKPOINTS, file_key, stored_name
from model_checkpoint.storage.objects.requests.parallel import in_parallel
from model_checkpoint.storage.objects.trash import forget, set_aside
from model_checkpoint.storage.objects.writer import COPY_BYTES, Buffers, ObjectCopy, ObjectWriter, stamp_of

_TRIES = 16


class ObjectAttempt(EndingAttempt):
    """One attempt; see :class:`model_checkpoint.storage.contract.store.Attempt`."""

    def __init__(self, bucket: Bucket, name: str, attempt: str, *, buffers: Buffers) -> None:
        self._begin(bucket, name, attempt, buffers=buffers)
        self._lease = Lease(bucket, attempt=attempt, name=name)

    def _begin(self, bucket: Bucket, name: str, attempt: str, *, buffers: Buffers) -> None:
        self._bucket, self._name, self._attempt, self._buffers = bucket, name, attempt, buffers
        self._where = bucket.where(f"{CHECKPOINTS}/{name}")
        self._writers: dict[str, ObjectWriter | ObjectCopy] = {}
        self._over = False

    def create(self, file: str, size: int) -> ObjectWriter:
        """Open a new file of ``size`` bytes; it goes to a key no other attempt has."""
        self._require_open()
        check_new_file(file, self._writers, self._where)
        key = file_key(self._name, stored_name(file, self._attempt))
        writer = self._writers[file] = ObjectWriter(self._bucket, key, size, buffers=self._buffers)
        return writer

    def link(self, file: str, *, source: str, source_file: str, identity: str) -> bool:
        """Let the server copy ``source_file`` of ``source``; saves the upload, not the space."""
        self._require_open()
        check_new_file(file, self._writers, self._where)
        origin = file_key(check_name(source, self._where), check_name(source_file, self._where))
        key = file_key(self._name, stored_name(file, self._attempt))
        try:
            found = self._bucket.head(origin)
            if stamp_of(found).identity != identity or found.size > COPY_BYTES:
                return False
            self._bucket.copy(origin, key)
            self._writers[file] = ObjectCopy(key, stamp_of(self._bucket.head(key)))
        except KeyMissing:
            return False
        except StorageFailure as error:
            log.warning("%s: the store did not copy %s, so it is uploaded (%s)", self._where, origin, error)
            return False
        return True

    def stamps(self) -> dict[str, FileStat]:
        """Stamps of the files that are in the store so far."""
        return {file: writer.stamp for file, writer in self._writers.items() if writer.stamp is not None}

    def publish(self, manifest: bytes, *, replace: bool = False, obsolete: Sequence[str] = ()) -> None:
        """Make the checkpoint visible and durable, by one conditional put."""
        self._require_open()
        require_sealed(self._where, self._writers)
        if not manifest:
            raise misused(self._where, "a manifest of no bytes means a deleted checkpoint")
        gone = tuple(check_name(file, self._where) for file in obsolete if file != MANIFEST)
        try:
            self._commit(bytes(manifest), replace=replace, obsolete=gone)
        except DurabilityUnknown:
            self._over = True  # both versions stay where they are, and recovery decides which one goes
            self._lease.leave()
            raise
        self._over = True
        self._lease.release()

    @property
    def _whole(self) -> bool:
        """Whether a file is kept with the attempt id behind its name: then no such file of an older attempt counts."""
        return any(stored_name(file, self._attempt) != file for file in self._writers)

    def _commit(self, manifest: bytes, *, replace: bool, obsolete: tuple[str, ...]) -> None:
        """Commit as new or over the old, whichever the name turns out to be; the old one can be brought back."""
        for _ in range(_TRIES):
            found = find(self._bucket, self._name) if replace else None
            aside = (
                None if found is None else set_aside(self._bucket, self._name, found, self._outdated(found, obsolete))
            )
            home = found.home if found is not None and not self._whole else self._attempt
            draft = ManifestPut(data=manifest, attempt=self._attempt, home=home)
            try:
                return commit(self._bucket, self._name, draft, over=found)
            except (ConditionFailed, StepExists):
                if aside is not None:
                    forget(self._bucket, aside)
                if not replace:
                    raise
        raise StorageFailure(
            f"{self._where}: the checkpoint was replaced {_TRIES} times meanwhile. Let one process at a time do that.",
            self._where,
        )

    def _outdated(self, found: CurrentManifest, obsolete: tuple[str, ...]) -> dict[str, int]:
        """Stored files that go with ``found`` once it is replaced, and their sizes.

        A version none of whose files the caller names is one it did not know of: then its own files go.
        """
        listed = found.listed() or frozenset()
        names = set(obsolete) if not listed or listed & set(obsolete) or not obsolete else {*obsolete, *listed}
        own = {stored_name(file, self._attempt) for file in self._writers}
        present = files_of(self._bucket, found, self._name).items()
        return {
            stored: item.size for stored, item in present if stored.partition("~")[0] in names and stored not in own
        }

    def abort(self) -> None:
        """Remove everything staged; what cannot be removed now, or may still arrive, is left to recovery."""
        if self._over:
            return
        self._over = True
        touched = [writer for writer in self._writers.values() if writer.touched]
        clean = all(writer.sealed for writer in touched)
        try:
            for writer in self._writers.values():
                writer.give_up()
            in_parallel(self._bucket.delete, [writer.key for writer in touched])
        except CheckpointException as error:
            log.warning("%s: leavings stay until the next recovery (%s)", self._where, error)
            clean = False
        if clean:
            self._lease.release()
        else:
            self._lease.leave()

    def _require_open(self) -> None:
        if self._over:
            raise attempt_over(self._where)
