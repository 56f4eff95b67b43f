"""Memory store: checkpoints in this process, for tests, notebooks and dry runs.

All stores of one ``memory://`` URL share their content. It behaves like an object store: files are written under keys
of their own, and a checkpoint comes to be by putting its manifest, which fails if there is one already.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from model_checkpoint import forks
from model_checkpoint.errors import MemoryRefused, RootNotShared, StorageFailure
from model_checkpoint.manifest import decode_summary
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.failures import (
    attempt_over,
    ended,
    file_gone,
    misused,
    name_taken,
    name_taken_again,
    no_such_checkpoint,
    not_in_trash,
    not_sealed,
)
from model_checkpoint.storage.contract.names import (
    MANIFEST,
    REPLACED_MANIFEST,
    TrashToken,
    check_attempt,
    check_name,
    check_new_file,
    check_own_files,
)
from model_checkpoint.storage.contract.sidecars import SidecarRead
from model_checkpoint.storage.contract.store import FileStat, Swept, Trashed, Waiting

SCHEME = "memory://"

Files = Mapping[str, memoryview]  # a published version never changes: a replacement is another mapping


@dataclass(frozen=True, slots=True)
class _Discarded:
    files: Files
    since: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class _Bucket:
    guard: threading.RLock = field(default_factory=threading.RLock)
    published: dict[str, Files] = field(default_factory=dict)
    trash: dict[str, _Discarded] = field(default_factory=dict)  # in the order of deletion
    sidecars: dict[str, bytes] = field(default_factory=dict)
    stages: weakref.WeakValueDictionary[str, MemoryAttempt] = field(default_factory=weakref.WeakValueDictionary)

    def stamp(self, content: memoryview) -> FileStat:
        """What is known of a file."""
        with self.guard:
            versions = [*self.published.values(), *(gone.files for gone in self.trash.values())]
        held = [other for files in versions for other in files.values()]
        links = sum(other.obj is content.obj for other in held)
        return FileStat(size=len(content), identity=_identity(content), links=links)


def _identity(content: memoryview) -> str:
    """Which memory it is, however many views there are of it."""
    return f"{id(content.obj):x}"


_buckets: dict[str, _Bucket] = {}
_registering = forks.lock()


class MemoryWriter:
    """One file being written; see :class:`model_checkpoint.storage.contract.store.Writer`."""

    alignment = 1

    def __init__(self, path: str, size: int) -> None:
        self._path, self._written, self._counting = path, 0, threading.Lock()
        try:
            self.content = memoryview(bytearray(size))
        except MemoryError as error:
            raise MemoryRefused(f"{path}: no memory for {size} bytes. Save to a disk instead.", path) from error
        self._open = True
        self.sealed = False

    def write(self, offset: int, data: memoryview) -> None:
        """Write all of ``data`` at ``offset``."""
        view = memoryview(data).cast("B")
        if not self._open:
            raise misused(self._path, "it is closed already")
        if offset < 0 or offset + len(view) > len(self.content):
            outside = f"bytes {offset} to {offset + len(view)} lie outside the {len(self.content)} announced"
            raise misused(self._path, outside)
        self.content[offset : offset + len(view)] = view
        with self._counting:
            self._written += len(view)

    def seal(self, size: int | None = None) -> None:
        """Cut to ``size``, or to the announced size, and accept no more bytes."""
        if not self._open:
            raise misused(self._path, "it was sealed, or failed, before")
        announced = len(self.content)
        final = announced if size is None else size
        if not 0 <= final <= min(self._written, announced):
            raise misused(self._path, f"only {self._written} of the {final} bytes announced were written")
        if final < announced:
            self.content = memoryview(bytearray(self.content[:final]))  # a slice would hold on to all of it
        self._open, self.sealed = False, True


class MemoryReader:
    """One file; see :class:`model_checkpoint.storage.contract.store.Reader`."""

    def __init__(self, content: memoryview, where: str, file: str) -> None:
        self._content, self._where, self._file = content, where, file

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return len(self._content)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset``."""
        view = memoryview(buffer).cast("B")
        if offset + len(view) > self.size:
            raise ended(self._where, self._file, wanted=range(offset, offset + len(view)), end=self.size)
        view[:] = self._content[offset : offset + len(view)]

    def map(self) -> memoryview | None:
        """The file itself, read-only."""
        return self._content

    def close(self) -> None:
        """Nothing to let go of."""


class MemoryAttempt:
    """One attempt; see :class:`model_checkpoint.storage.contract.store.Attempt`."""

    def __init__(self, bucket: _Bucket, where: str, name: str, attempt: str) -> None:
        self._bucket, self._where, self._name, self._attempt = bucket, where, name, attempt
        self._writers: dict[str, MemoryWriter] = {}
        self._linked: dict[str, memoryview] = {}
        self.alive = True

    def create(self, file: str, size: int) -> MemoryWriter:
        """Open a new file of ``size`` bytes."""
        self._require_alive()
        check_new_file(file, {name.casefold() for name in (*self._writers, *self._linked)}, self._where)
        self._writers[file] = MemoryWriter(f"{self._where}/{file}", size)
        return self._writers[file]

    def link(self, file: str, *, source: str, source_file: str, identity: str) -> bool:
        """Share the content of a published file."""
        self._require_alive()
        check_new_file(file, {name.casefold() for name in (*self._writers, *self._linked)}, self._where)
        content = self._bucket.published.get(source, {}).get(source_file)
        if content is None or _identity(content) != identity:
            return False
        self._linked[file] = content
        return True

    def stamps(self) -> dict[str, FileStat]:
        """Stamps of the files staged so far."""
        written = {file: writer.content for file, writer in self._writers.items()}
        return {file: self._bucket.stamp(content) for file, content in (written | self._linked).items()}

    def publish(self, manifest: bytes, *, replace: bool = False, obsolete: Sequence[str] = ()) -> None:
        """Make the checkpoint visible."""
        self._require_alive()
        if loose := [file for file, writer in self._writers.items() if not writer.sealed]:
            raise not_sealed(self._where, loose)
        if replace:
            check_own_files((*self._writers, *self._linked), self._attempt, self._where)
        new = {file: writer.content.toreadonly() for file, writer in self._writers.items()} | self._linked
        gone = {check_name(file, self._where) for file in obsolete} - set(new)
        with self._bucket.guard:
            self._require_alive()  # another rank may have settled it just now
            old = self._bucket.published.get(self._name, {})
            if old and not replace:
                raise name_taken(self._where)
            kept = {file: content for file, content in old.items() if file not in gone}
            self._bucket.published[self._name] = kept | new | {MANIFEST: memoryview(bytes(manifest))}
        self.abort()

    def settle(self) -> None:
        """Let it never be published."""
        with self._bucket.guard:
            self.abort()

    def abort(self) -> None:
        """Forget everything staged."""
        self.alive = False
        self._writers.clear()
        self._linked.clear()

    def _require_alive(self) -> None:
        if not self.alive:
            raise attempt_over(self._where)


class MemoryMending(MemoryAttempt):
    """One mending; see :class:`model_checkpoint.storage.contract.store.Mending`."""

    def finish(self, *, over: bytes, manifest: bytes | None = None) -> bool:
        """Put every file in its place, then the manifest, if there is one."""
        self._require_alive()
        if loose := [file for file, writer in self._writers.items() if not writer.sealed]:
            raise not_sealed(self._where, loose)
        new = {file: writer.content.toreadonly() for file, writer in self._writers.items()} | self._linked
        if manifest is not None:
            new[MANIFEST] = memoryview(bytes(manifest))
        with self._bucket.guard:
            old = self._bucket.published.get(self._name, {})
            done = MANIFEST in old and bytes(old[MANIFEST]) == over
            if done:
                self._keep({file: old[file] for file in new if file in old})
                self._bucket.published[self._name] = {**old, **new}
        self.abort()
        return done

    def _keep(self, replaced: Files) -> None:
        """Let the trash hold what was replaced; under a manifest's own name it would be a checkpoint."""
        kept = {REPLACED_MANIFEST if file == MANIFEST else file: content for file, content in replaced.items()}
        if kept:
            self._bucket.trash[str(TrashToken.fresh(self._name))] = _Discarded(kept)


_A = TypeVar("_A", bound=MemoryAttempt)


class JoinedMemoryAttempt:
    """The attempt as another rank, a thread of this process, sees it."""

    def __init__(self, begun: MemoryAttempt, where: str) -> None:
        self._begun, self._where = begun, where
        self.create, self.link, self.stamps = begun.create, begun.link, begun.stamps

    def publish(self, manifest: bytes, *, replace: bool = False, obsolete: Sequence[str] = ()) -> None:
        """Refused: rank 0 publishes."""
        raise attempt_over(self._where)

    def flush(self) -> None:
        """Nothing to flush."""

    def abort(self) -> None:
        """Nothing to let go of."""


class InMemoryStore:
    """A root in memory; see :class:`model_checkpoint.storage.contract.store.Store`.

    Example:
        >>> store = InMemoryStore("memory://doctest")
        >>> store.stage("step-1", "attempt-1").publish(b"the manifest")
        >>> InMemoryStore("memory://doctest").names()
        ['step-1']
    """

    def __init__(self, url: str) -> None:
        for part in url.removeprefix(SCHEME).split("/"):
            check_name(part, url)
        self._url = url

    @property
    def url(self) -> str:
        """The URL it was opened with."""
        return self._url

    @property
    def _bucket(self) -> _Bucket:
        """What is there; an empty one, kept nowhere, if nothing is."""
        return _buckets.get(self._url) or _Bucket()

    def exists(self) -> bool:
        """Whether anything was ever staged here."""
        return self._url in _buckets

    def names(self) -> list[str]:
        """Names of published checkpoints, in no order."""
        return list(self._bucket.published)

    def entries(self) -> list[str]:
        """The same: here nothing else can have a name."""
        return self.names()

    def has(self, name: str) -> bool:
        """Whether ``name`` is published."""
        return name in self._bucket.published

    def _files(self, name: str) -> Files:
        files = self._bucket.published.get(check_name(name, self._url))
        if files is None:
            raise no_such_checkpoint(f"{self._url}/{name}", self._url)
        return files

    def read_manifest(self, name: str) -> bytes:
        """The manifest of ``name``."""
        return bytes(self._files(name)[MANIFEST])

    def files(self, name: str) -> dict[str, int]:
        """Every file of ``name``, its manifest included, with its size."""
        return {file: len(content) for file, content in self._files(name).items()}

    def stamps(self, name: str) -> dict[str, FileStat]:
        """Every file of ``name`` with its stamp."""
        return {file: self._bucket.stamp(content) for file, content in self._files(name).items()}

    def open(self, name: str, file: str) -> MemoryReader:
        """Open one data file."""
        where = f"{self._url}/{check_name(name, self._url)}"
        content = self._bucket.published.get(name, {}).get(check_name(file, where))
        if content is None:
            raise file_gone(where, file, listed=False if name in self._bucket.published else None)
        return MemoryReader(content, where, file)

    def stage(self, name: str, attempt: str) -> MemoryAttempt:
        """Begin an attempt."""
        return self._begin(MemoryAttempt, name, attempt)

    def mend(self, name: str, attempt: str) -> MemoryMending:
        """Begin to put files into a published checkpoint."""
        return self._begin(MemoryMending, name, attempt)

    def _begin(self, kind: type[_A], name: str, attempt: str) -> _A:
        check_name(name, self._url)
        check_attempt(attempt, self._url)
        bucket = self._made()
        with _registering:
            running = bucket.stages.get(attempt)
            if running is not None and running.alive:
                where = f"{self._url}/.staging/{attempt}"
                raise StorageFailure(f"{where}: the attempt id is in use. Use a fresh one for each attempt.", where)
            stage = kind(bucket, f"{self._url}/{name}", name, attempt)
            bucket.stages[attempt] = stage
        return stage

    def _made(self) -> _Bucket:
        """What is there, made if nothing is."""
        with _registering:
            return _buckets.setdefault(self._url, _Bucket())

    def read_sidecars(self, word: str = "") -> Iterator[SidecarRead]:
        """Every key that has ``word`` in it, with its bytes."""
        return iter(sorted(one for one in list(self._bucket.sidecars.items()) if word in one[0]))

    def write_sidecar(self, key: str, data: bytes) -> None:
        """Keep ``data`` under ``key``."""
        self._made().sidecars[check_name(key, self._url)] = bytes(data)

    def remove_sidecar(self, key: str) -> None:
        """Forget ``key``."""
        self._bucket.sidecars.pop(check_name(key, self._url), None)

    def stage_shared(self, name: str, attempt: str) -> MemoryAttempt:
        """Begin an attempt that other ranks, threads of this process, join."""
        return self.stage(name, attempt)

    def join(self, name: str, attempt: str) -> JoinedMemoryAttempt:
        """Take part in the attempt of another rank."""
        begun, where = self._bucket.stages.get(attempt), f"{self._url}/{check_name(name, self._url)}"
        if begun is None:
            raise RootNotShared(
                f"{where}: what rank 0 has begun is not there on this rank: memory is shared by threads only. Choose "
                "a root on a file system that all ranks share.",
                where,
            )
        return JoinedMemoryAttempt(begun, where)

    def settle(self, name: str, attempt: str) -> bool:
        """End an attempt of many ranks for good; whether it is published."""
        begun = self._bucket.stages.get(attempt)
        if begun is not None:
            begun.settle()
        if not self.has(name):
            return False
        return decode_summary(self.read_manifest(name), f"{self._url}/{name}").attempt == attempt

    def free_bytes(self) -> int | None:
        """Nobody can tell."""
        return None

    def discard(self, name: str) -> Trashed:
        """Move a published checkpoint to the trash."""
        bucket, token = self._bucket, TrashToken.fresh(check_name(name, self._url))
        with bucket.guard:
            bucket.trash[str(token)] = _Discarded(self._files(name))
            del bucket.published[name]
            return self._describe(token)

    def _describe(self, token: TrashToken) -> Trashed:
        nbytes = sum(len(content) for content in self._bucket.trash[str(token)].files.values())
        return Trashed(name=token.name, token=str(token), deleted=token.deleted, nbytes=nbytes)

    def trash(self) -> list[Trashed]:
        """What can be brought back, in the order in which it was deleted."""
        with self._bucket.guard:
            held = [text for text, gone in self._bucket.trash.items() if MANIFEST in gone.files]
            return [self._describe(TrashToken.parse(text)) for text in held]

    def read_trashed(self, token: str) -> bytes:
        """The manifest of what lies in the trash under ``token``."""
        with self._bucket.guard:
            gone = self._bucket.trash.get(token)
            if gone is None or MANIFEST not in gone.files:
                raise not_in_trash(f"{self._url}/.trash/{token}", self._url)
            return bytes(gone.files[MANIFEST])

    def bring_back(self, token: str) -> str:
        """Undo a ``discard``."""
        bucket, name = self._bucket, TrashToken.parse(token, self._url).name
        with bucket.guard:
            if MANIFEST not in bucket.trash.get(token, _Discarded({})).files:
                raise not_in_trash(f"{self._url}/.trash/{token}", self._url)
            if name in bucket.published:
                raise name_taken_again(f"{self._url}/{name}")
            bucket.published[name] = bucket.trash.pop(token).files
        return name

    def sweep(self, graces: Graces, *, dry_run: bool = False) -> Swept:
        """Remove trash past its grace; attempts die with their objects, so there are no leavings."""
        bucket, now = self._bucket, time.monotonic()
        with bucket.guard:
            over = [self._describe(TrashToken.parse(text)) for text in bucket.trash]
            over = [item for item in over if now - bucket.trash[item.token].since >= graces.trash]
            for item in [] if dry_run else over:
                del bucket.trash[item.token]
            alive = [attempt for attempt, stage in bucket.stages.items() if stage.alive]
            gone = {item.token for item in over}
            left = {key: graces.trash - (now - one.since) for key, one in bucket.trash.items() if key not in gone}
        waiting = [Waiting(key=attempt, seconds=None) for attempt in alive]
        waiting += [Waiting(key=token, seconds=seconds) for token, seconds in left.items()]
        nbytes = sum(item.nbytes for item in over)
        return Swept(trashed=[item.token for item in over], alive=alive, nbytes=nbytes, waiting=waiting)
