"""Object store: checkpoints in Amazon S3, Google Cloud Storage, Azure, or whatever speaks one of their languages.

Data files go to keys nobody else writes; the manifest comes last, by a put that fails if there is one already. A bucket
that ignores such conditions is refused. Needs the package obstore (`pip install model-checkpoint[objects]`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any, TypeVar

from model_checkpoint.errors import CheckpointException
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.failures import no_such_checkpoint
from model_checkpoint.storage.contract.names import MANIFEST, TrashToken, check_attempt, check_name, is_name
from model_checkpoint.storage.contract.sidecars import SidecarRead
from model_checkpoint.storage.contract.stamping import StampsRead
from model_checkpoint.storage.contract.store import FileStat, ManifestRead, Swept, Tell, Trashed, nobody
from model_checkpoint.storage.objects import sidecar_objects
from model_checkpoint.storage.objects import trash as object_trash
from model_checkpoint.storage.objects.attempt import ObjectAttempt
from model_checkpoint.storage.objects.commit import CurrentManifest, find
from model_checkpoint.storage.objects.folder import Folder, files_of, list_folders
from model_checkpoint.storage.objects.joint_attempt import JoinedObjectAttempt, JointObjectAttempt, settle
from model_checkpoint.storage.objects.leases import leases
from model_checkpoint.storage.objects.mending import ObjectMending
from model_checkpoint.storage.objects.reader import ObjectReader, gone
from model_checkpoint.storage.objects.recovery import foresee, sweep
from model_checkpoint.storage.objects.requests.bucket import TERM_SECONDS, Address, Bucket, Through, connect
from model_checkpoint.storage.objects.requests.failures import KeyMissing
from model_checkpoint.storage.objects.requests.keys import CHECKPOINTS, file_key, is_of, manifest_key
from model_checkpoint.storage.objects.requests.parallel import map_in_order
from model_checkpoint.storage.objects.writer import Buffers, stamp_of

_A = TypeVar("_A", ObjectAttempt, JointObjectAttempt, JoinedObjectAttempt, ObjectMending)


class ObjectStore:
    """A root in an object store; see :class:`model_checkpoint.storage.contract.store.Store`.

    Credentials and endpoint come from the environment variables obstore reads (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``),
    or with ``store``, a store object of obstore for the bucket itself, without a prefix. ``term`` goes with ``store``:
    how many seconds a silent worker of another machine counts as alive, whatever the graces of a sweep.

    Example:
        >>> from obstore.store import S3Store
        >>> bucket = S3Store("bucket", region="eu-north-1", access_key_id="id", secret_access_key="secret")
        >>> ObjectStore("s3://bucket/runs/a/", store=bucket).url
        's3://bucket/runs/a'
    """

    def __init__(self, url: str, *, store: Any = None, term: float = TERM_SECONDS) -> None:
        address = Address.parse(url)
        self._bucket = connect(address) if store is None else Bucket(address, store, term)
        self._buffers = Buffers()

    @property
    def buffer_bytes(self) -> int:
        """Memory that each file takes while it is being uploaded."""
        return self._buffers.nbytes

    def within(self, nbytes: int) -> ObjectStore:
        """The same store, whose uploads take at most ``nbytes`` each, or the least that works."""
        other = copy(self)
        other._buffers = Buffers.within(nbytes)
        return other

    def with_requests(self, wrap: Callable[[Through], Through]) -> ObjectStore:
        """The same root, whose requests pass through what ``wrap`` makes."""
        other = copy(self)
        other._bucket = self._bucket.with_requests(wrap)
        return other

    @property
    def url(self) -> str:
        """The URL of the root."""
        return self._bucket.address.url

    def exists(self) -> bool:
        """Whether there is anything below the prefix."""
        return not self._bucket.is_empty()

    def names(self) -> list[str]:
        """Names of published checkpoints, in no order."""
        found = []
        for item in self._bucket.list(CHECKPOINTS):
            parts = item.key.split("/")
            if len(parts) == 3 and parts[2] == MANIFEST and item.size:
                found.append(parts[1])
        return found

    def entries(self) -> list[str]:
        """Every name below which something lies; a deletion may be all that is there."""
        return self._bucket.folders(CHECKPOINTS)

    def has(self, name: str) -> bool:
        """Whether ``name`` is published."""
        if not is_name(name):
            return False
        try:
            return self._bucket.head(manifest_key(name)).size > 0
        except KeyMissing:
            return False

    def read_manifest(self, name: str) -> bytes:
        """The manifest of ``name``."""
        return self._find(name).data

    def read_manifests(self, names: Iterable[str], *, limit: int | None = None) -> Iterator[ManifestRead]:
        """Each name with its manifest, or its first ``limit`` bytes, or its error: many requests at a time."""

        def read(name: str) -> ManifestRead:
            try:
                return name, self._read_head(name, limit)
            except CheckpointException as error:
                return name, error

        return map_in_order(read, names)

    def _read_head(self, name: str, limit: int | None) -> bytes:
        where = self._where(name)
        try:
            data = self._bucket.read_head(manifest_key(name), limit)
        except KeyMissing:
            data = b""
        if not data:
            raise no_such_checkpoint(where, self.url)
        return data

    def files(self, name: str) -> dict[str, int]:
        """Every file of ``name``, its manifest included, with its size."""
        found = self._find(name)
        stored = files_of(self._bucket, found, name)
        sizes = {file.partition("~")[0]: item.size for file, item in stored.items()}
        return sizes | {MANIFEST: len(found.data)}

    def stamps(self, name: str) -> dict[str, FileStat]:
        """Every file of ``name``, its manifest included, with its stamp."""
        found = self._find(name)
        stored = files_of(self._bucket, found, name)
        stamps = {file.partition("~")[0]: stamp_of(item) for file, item in stored.items()}
        return stamps | {MANIFEST: stamp_of(self._bucket.head(manifest_key(name)))}

    def stamp_all(self, names: Iterable[str]) -> Iterator[StampsRead]:
        """Each name with the stamps of its files, by one listing; only what else lies there makes it look closer."""
        folders, at_work = list_folders(self._bucket), list(leases(self._bucket))
        for name in names:
            try:
                yield name, self._stamps_in(folders.get(name), name, at_work)
            except CheckpointException as error:
                yield name, error

    def _stamps_in(self, folder: Folder | None, name: str, at_work: list[str]) -> dict[str, FileStat]:
        if folder is None or folder.manifest is None or not folder.published:
            raise no_such_checkpoint(self._where(name), self.url)
        if folder.deletions or any(is_of(stored, attempt) for stored in folder.files for attempt in at_work):
            return self.stamps(name)
        stamps = {file.partition("~")[0]: stamp_of(item) for file, item in folder.files.items()}
        return stamps | {MANIFEST: stamp_of(folder.manifest)}

    def open(self, name: str, file: str) -> ObjectReader:
        """Open one data file."""
        where = self._where(name)
        check_name(file, where)
        stored = file
        try:
            size = self._bucket.head(file_key(name, file)).size
        except KeyMissing:
            stored, size = self._look_at_home(name, file)
        return ObjectReader(self._bucket, file_key(name, stored), size=size, where=where, file=file)

    def _look_at_home(self, name: str, file: str) -> tuple[str, int]:
        """The stored name and size of a file whose name lacks the attempt id."""
        found = find(self._bucket, name)
        stored = f"{file}~{found.home}" if found is not None else file
        try:
            return stored, self._bucket.head(file_key(name, stored)).size
        except KeyMissing:
            raise gone(self._where(name), file) from None

    def stage(self, name: str, attempt: str) -> ObjectAttempt:
        """Begin an attempt."""
        return self._begin(ObjectAttempt, name, attempt)

    def stage_shared(self, name: str, attempt: str) -> JointObjectAttempt:
        """Begin an attempt that other ranks join."""
        return self._begin(JointObjectAttempt, name, attempt)

    def join(self, name: str, attempt: str) -> JoinedObjectAttempt:
        """Take part in the attempt of another rank."""
        return self._begin(JoinedObjectAttempt, name, attempt)

    def settle(self, name: str, attempt: str) -> bool:
        """End an attempt of many ranks for good; whether it is published."""
        check_name(name, self.url)
        return settle(self._bucket, name, check_attempt(attempt, self.url))

    def mend(self, name: str, attempt: str) -> ObjectMending:
        """Begin to put files into a published checkpoint."""
        return self._begin(ObjectMending, name, attempt)

    def _begin(self, kind: type[_A], name: str, attempt: str) -> _A:
        check_name(name, self.url)
        check_attempt(attempt, self.url)
        return kind(self._bucket, name, attempt, buffers=self._buffers)

    def free_bytes(self) -> int | None:
        """Nobody can tell."""
        return None

    def discard(self, name: str) -> Trashed:
        """Delete a published checkpoint; its files stay where they are until its grace is over."""
        return object_trash.discard(self._bucket, check_name(name, self.url))

    def plan_discard(self, name: str) -> str:
        """A token for the deletion of ``name``."""
        return str(TrashToken.fresh(check_name(name, self.url)))

    def discard_planned(self, token: str) -> None:
        """Delete a published checkpoint, unless that was given up."""
        object_trash.discard_planned(self._bucket, TrashToken.parse(token, self.url))

    def settle_discard(self, token: str) -> bool:
        """End a deletion of many ranks for good; whether the checkpoint is gone."""
        return object_trash.settle_discard(self._bucket, TrashToken.parse(token, self.url))

    def trash(self) -> list[Trashed]:
        """What can be brought back, in the order of deletion."""
        return object_trash.contents(self._bucket)

    def read_trashed(self, token: str) -> bytes:
        """The manifest of what lies in the trash under ``token``."""
        return object_trash.read(self._bucket, token)

    def bring_back(self, token: str) -> str:
        """Undo a ``discard``."""
        return object_trash.bring_back(self._bucket, token)

    def sweep(self, graces: Graces, *, dry_run: bool = False, tell: Tell = nobody) -> Swept:
        """Remove leavings of dead attempts, stale uploads, and trash past its grace."""
        return foresee(self._bucket, graces) if dry_run else sweep(self._bucket, graces, tell)

    def read_sidecars(self, word: str = "") -> Iterator[SidecarRead]:
        """Every key that has ``word`` in it, with its bytes, or its error."""
        return sidecar_objects.read_all(self._bucket, word)

    def write_sidecar(self, key: str, data: bytes) -> None:
        """Keep ``data`` under ``key``."""
        sidecar_objects.write(self._bucket, key, data)

    def remove_sidecar(self, key: str) -> None:
        """Forget ``key``."""
        sidecar_objects.remove(self._bucket, key)

    def _where(self, name: str) -> str:
        return f"{self.url}/{CHECKPOINTS}/{check_name(name, self.url)}"

    def _find(self, name: str) -> CurrentManifest:
        where = self._where(name)
        found = find(self._bucket, name)
        if found is None:
            raise no_such_checkpoint(where, self.url)
        return found
