"""Memory attempts: files in memory on their way to a checkpoint, and what a root in memory holds."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from model_checkpoint import forks
from model_checkpoint.errors import MemoryRefused
from model_checkpoint.storage.contract.failures import (
    attempt_over,
    ended,
    name_taken,
    require_sealed,
    require_within,
    sealed_size,
)
from model_checkpoint.storage.contract.names import (
    MANIFEST,
    REPLACED_MANIFEST,
    TrashToken,
    check_name,
    check_new_file,
)
from model_checkpoint.storage.contract.store import FileStat

Files = Mapping[str, memoryview]  # a published version never changes: a replacement is another mapping


@dataclass(frozen=True, slots=True)
class Discarded:
    """A version that was deleted or replaced, and when."""

    files: Files
    since: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class MemoryBucket:
    """All that one root in memory holds."""

    guard: threading.RLock = field(default_factory=forks.rlock)
    published: dict[str, Files] = field(default_factory=dict)
    trash: dict[str, Discarded] = field(default_factory=dict)  # in the order of deletion
    kept: set[str] = field(default_factory=set)  # tokens of deletions that were given up
    sidecars: dict[str, bytes] = field(default_factory=dict)
    stages: weakref.WeakValueDictionary[str, MemoryAttempt] = field(default_factory=weakref.WeakValueDictionary)

    def stamp(self, content: memoryview) -> FileStat:
        """What is known of a file."""
        with self.guard:
            versions = [*self.published.values(), *(gone.files for gone in self.trash.values())]
        held = [other for files in versions for other in files.values()]
        links = sum(other.obj is content.obj for other in held)
        return FileStat(size=len(content), identity=identity_of(content), links=links)


def identity_of(content: memoryview) -> str:
    """Which memory it is, however many views there are of it."""
    return f"{id(content.obj):x}"


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
        announced = len(self.content)
        require_within(self._path, offset, len(view), announced=announced, room=announced, still_open=self._open)
        self.content[offset : offset + len(view)] = view
        with self._counting:
            self._written += len(view)

    def seal(self, size: int | None = None) -> None:
        """Cut to ``size``, or to the announced size, and accept no more bytes."""
        announced = len(self.content)
        final = sealed_size(self._path, size, announced=announced, written=self._written, still_open=self._open)
        self._open = False
        self._keep(final)
        self.sealed = True

    def _keep(self, size: int) -> None:
        if size < len(self.content):
            self.content = memoryview(bytearray(self.content[:size]))  # a slice would hold on to all of it


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

    def __init__(self, bucket: MemoryBucket, where: str, name: str, attempt: str) -> None:
        self._bucket, self._where, self._name, self._attempt = bucket, where, name, attempt
        self._writers: dict[str, MemoryWriter] = {}
        self._linked: dict[str, memoryview] = {}
        self.alive = True

    def create(self, file: str, size: int) -> MemoryWriter:
        """Open a new file of ``size`` bytes."""
        self._require_alive()
        check_new_file(file, (*self._writers, *self._linked), self._where)
        self._writers[file] = MemoryWriter(f"{self._where}/{file}", size)
        return self._writers[file]

    def link(self, file: str, *, source: str, source_file: str, identity: str) -> bool:
        """Share the content of a published file."""
        self._require_alive()
        check_new_file(file, (*self._writers, *self._linked), self._where)
        content = self._bucket.published.get(source, {}).get(source_file)
        if content is None or identity_of(content) != identity:
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
        new = self._staged()
        gone = {check_name(file, self._where) for file in obsolete} - set(new)
        with self._bucket.guard:
            self._require_alive()  # another rank may have settled it just now
            old = self._bucket.published.get(self._name, {})
            if old and not replace:
                raise name_taken(self._where)
            if old:
                self._bucket.trash[str(TrashToken.fresh(self._name))] = Discarded(old)
            kept = {file: content for file, content in old.items() if file not in gone}
            self._bucket.published[self._name] = kept | new | {MANIFEST: memoryview(bytes(manifest))}
        self.abort()

    def _staged(self) -> dict[str, memoryview]:
        """What is to be published, all of it sealed."""
        require_sealed(self._where, self._writers)
        return {file: writer.content.toreadonly() for file, writer in self._writers.items()} | self._linked

    def flush(self) -> None:
        """Nothing to flush."""

    def open(self, file: str) -> MemoryReader:
        """Open a sealed file of the attempt."""
        self._require_alive()
        return MemoryReader(self._writers[file].content, self._where, file)

    def drop(self, files: Sequence[str]) -> None:
        """Forget files of the attempt."""
        for file in files:
            self._writers.pop(file, None)

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
        new = self._staged()
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
            self._bucket.trash[str(TrashToken.fresh(self._name))] = Discarded(kept)


class JoinedMemoryAttempt:
    """The attempt as another rank, a thread of this process, sees it."""

    def __init__(self, begun: MemoryAttempt, where: str) -> None:
        self._begun, self._where = begun, where
        self.create, self.link, self.stamps = begun.create, begun.link, begun.stamps
        self.open, self.drop = begun.open, begun.drop

    def publish(self, manifest: bytes, *, replace: bool = False, obsolete: Sequence[str] = ()) -> None:
        """Refused: rank 0 publishes."""
        raise attempt_over(self._where)

    def flush(self) -> None:
        """Nothing to flush."""

    def abort(self) -> None:
        """Nothing to let go of."""
