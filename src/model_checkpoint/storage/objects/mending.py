"""Object mending: files take their places in a published checkpoint, one upload each.

An upload shows under its key when it is whole, so a damaged file is replaced by one put, and no manifest is touched.
What is replaced is first copied below ``.trash``, where recovery removes it when its grace is over. A damaged manifest
is replaced last, by a put over exactly the version that was read.
"""

from __future__ import annotations

from model_checkpoint.errors import CheckpointException, StorageFailure
from model_checkpoint.manifest import decode_summary
from model_checkpoint.storage.contract.failures import attempt_over, require_sealed
from model_checkpoint.storage.contract.names import (
    REPLACED_MANIFEST,
    TrashToken,
    check_name,
    check_new_file,
)
from model_checkpoint.storage.objects.commit import CurrentManifest, ManifestPut, commit, find
from model_checkpoint.storage.objects.copied_trash import trash_key
from model_checkpoint.storage.objects.leases import Lease
from model_checkpoint.storage.objects.requests.bucket import Bucket, log
from model_checkpoint.storage.objects.requests.failures import ConditionFailed, KeyMissing
from model_checkpoint.storage.objects.requests.keys import (
    CHECKPOINTS,
    file_key,
    manifest_key,
    random_ids,
    stored_name,
)
from model_checkpoint.storage.objects.writer import COPY_BYTES, Buffers, ObjectCopy, ObjectWriter, stamp_of


class ObjectMending:
    """One mending; see :class:`model_checkpoint.storage.contract.store.Mending`."""

    def __init__(self, bucket: Bucket, name: str, attempt: str, *, buffers: Buffers) -> None:
        self._bucket, self._name, self._buffers = bucket, name, buffers
        self._where = bucket.where(f"{CHECKPOINTS}/{name}")
        self._token = TrashToken.fresh(name)
        self._writers: dict[str, ObjectWriter | ObjectCopy] = {}
        self._over = False
        self._lease = Lease(bucket, attempt=attempt, name=name)

    def create(self, file: str, size: int) -> ObjectWriter:
        """Open a file that will be ``file`` of the checkpoint once it is sealed."""
        key = self._place(file)
        writer = self._writers[file] = ObjectWriter(self._bucket, key, size, buffers=self._buffers)
        return writer

    def link(self, file: str, *, source: str, source_file: str, identity: str) -> bool:
        """Let the server copy ``source_file`` of ``source``."""
        origin = file_key(check_name(source, self._where), check_name(source_file, self._where))
        try:
            found = self._bucket.head(origin)
            if stamp_of(found).identity != identity or found.size > COPY_BYTES:
                return False
            key = self._place(file)
            self._bucket.copy(origin, key)
            self._writers[file] = ObjectCopy(key, stamp_of(self._bucket.head(key)))
        except KeyMissing:
            return False
        return True

    def _place(self, file: str) -> str:
        """The key of ``file``; what is there is copied to the trash before it can be replaced."""
        if self._over:
            raise attempt_over(self._where)
        check_new_file(file, self._writers, self._where)
        place = find(self._bucket, self._name)
        home = place.home if place is not None else ""
        usual = file if random_ids(file) or not home else stored_name(file, home)
        for stored in dict.fromkeys((file, f"{file}~{home}")):  # the order in which a reader looks for it
            if self._keep(file_key(self._name, stored), file):
                return file_key(self._name, stored)
        return file_key(self._name, usual)

    def _keep(self, key: str, kept: str) -> bool:
        """Copy what is about to be replaced to the trash; whether it was there."""
        try:
            if self._bucket.head(key).size > COPY_BYTES:
                log.warning("%s: is too large for the store to copy, so it is not kept", self._bucket.where(key))
            else:
                self._bucket.copy(key, trash_key(self._token, kept))
        except KeyMissing:
            return False
        return True

    def finish(self, *, over: bytes, manifest: bytes | None = None) -> bool:
        """Look whether the files are still of the version in place, then put the manifest, if there is one."""
        if self._over:
            raise attempt_over(self._where)
        require_sealed(self._where, self._writers)
        place = find(self._bucket, self._name)
        done = place is not None and place.data == over
        if done and place is not None and manifest is not None:
            done = self._switch(place, manifest)
        self._over = True
        if not done:
            self._withdraw(place)
        self._lease.release()
        return done

    def _switch(self, place: CurrentManifest, manifest: bytes) -> bool:
        attempt = decode_summary(manifest, self._where).attempt
        self._keep(manifest_key(self._name), REPLACED_MANIFEST)
        draft = ManifestPut(data=manifest, attempt=attempt, home=place.home or attempt)
        try:
            commit(self._bucket, self._name, draft, over=place)
        except ConditionFailed:
            return False
        return True

    def _withdraw(self, place: CurrentManifest | None) -> None:
        """Remove files that no version needs any more; what fails here recovery finds by its age."""
        needed = place.listed() if place is not None else frozenset()
        if needed is None:
            return
        for file, writer in self._writers.items():
            if file not in needed:
                self._remove(writer.key)

    def _remove(self, key: str) -> None:
        try:
            self._bucket.delete(key)
        except StorageFailure as error:
            log.warning("%s: could not be removed, recovery will (%s)", self._bucket.where(key), error)

    def abort(self) -> None:
        """Stop what is under way; files that are in their places stay there, since they are what they should be."""
        if self._over:
            return
        self._over = True
        for writer in self._writers.values():
            try:
                writer.give_up()
            except CheckpointException as error:
                log.warning("%s: could not be stopped (%s)", self._where, error)
        self._lease.release()
