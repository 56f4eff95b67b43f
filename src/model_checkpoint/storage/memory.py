"""Memory store: checkpoints in this process, for tests, notebooks and dry runs.

All stores of one ``memory://`` URL share their content. It behaves like an object store: files are written under keys
of their own, and a checkpoint comes to be by putting its manifest, which fails if there is one already.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

from model_checkpoint import forks
from model_checkpoint.errors import RootNotShared, StorageFailure
from model_checkpoint.manifest import decode_summary
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.failures import (
    deletion_over,
    file_gone,
    name_taken_again,
    no_such_checkpoint,
    not_in_trash,
)
from model_checkpoint.storage.contract.names import (
    MANIFEST,
    TrashToken,
    check_attempt,
    check_name,
)
from model_checkpoint.storage.contract.sidecars import SidecarRead
from model_checkpoint.storage.contract.store import FileStat, Swept, Tell, Trashed, Waiting, nobody
from model_checkpoint.storage.memory_attempts import (
    Discarded,
    Files,
    JoinedMemoryAttempt,
    MemoryAttempt,
    MemoryBucket,
    MemoryMending,
    MemoryReader,
)

SCHEME = "memory://"

_buckets: dict[str, MemoryBucket] = {}
_registering = forks.lock()

_A = TypeVar("_A", bound=MemoryAttempt)


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
    def _bucket(self) -> MemoryBucket:
        """What is there; an empty one, kept nowhere, if nothing is."""
        return _buckets.get(self._url) or MemoryBucket()

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

    def _made(self) -> MemoryBucket:
        """What is there, made if nothing is."""
        with _registering:
            return _buckets.setdefault(self._url, MemoryBucket())

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
        return self._discard(TrashToken.fresh(check_name(name, self._url)))

    def _discard(self, token: TrashToken) -> Trashed:
        bucket = self._bucket
        with bucket.guard:
            files = self._files(token.name)
            if str(token) in bucket.kept:
                raise deletion_over(f"{self._url}/{token.name}")
            bucket.trash[str(token)] = Discarded(files)
            del bucket.published[token.name]
            return self._describe(token)

    def plan_discard(self, name: str) -> str:
        """A token for the deletion of ``name``."""
        return str(TrashToken.fresh(check_name(name, self._url)))

    def discard_planned(self, token: str) -> None:
        """Move a published checkpoint to the trash, unless that was given up."""
        self._discard(TrashToken.parse(token, self._url))

    def settle_discard(self, token: str) -> bool:
        """End a deletion of many ranks, threads of this process, for good; whether the checkpoint is gone."""
        bucket = self._bucket
        with bucket.guard:
            if token in bucket.trash or not self.has(TrashToken.parse(token, self._url).name):
                return True
            bucket.kept.add(token)
            return False

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
            if MANIFEST not in bucket.trash.get(token, Discarded({})).files:
                raise not_in_trash(f"{self._url}/.trash/{token}", self._url)
            if name in bucket.published:
                raise name_taken_again(f"{self._url}/{name}")
            bucket.published[name] = bucket.trash.pop(token).files
        return name

    def sweep(self, graces: Graces, *, dry_run: bool = False, tell: Tell = nobody) -> Swept:
        """Remove trash past its grace; attempts die with their objects, so there are no leavings."""
        bucket, now = self._bucket, time.monotonic()
        with bucket.guard:
            over = [self._describe(TrashToken.parse(text)) for text in bucket.trash]
            over = [item for item in over if now - bucket.trash[item.token].since >= graces.of_trash(item.token)]
            for item in [] if dry_run else over:
                del bucket.trash[item.token]
            bucket.kept = {token for token in bucket.kept if self.has(TrashToken.parse(token).name)}
            alive = [attempt for attempt, stage in bucket.stages.items() if stage.alive]
            tokens = {item.token for item in over}
            there = {key: one for key, one in bucket.trash.items() if key not in tokens}
            left = {key: graces.of_trash(key) - (now - one.since) for key, one in there.items()}
        for item in [] if dry_run else over:
            tell(item.token)
        waiting = [Waiting(key=attempt, seconds=None) for attempt in alive]
        waiting += [Waiting(key=token, seconds=seconds) for token, seconds in left.items()]
        nbytes = sum(item.nbytes for item in over)
        return Swept(trashed=[item.token for item in over], alive=alive, nbytes=nbytes, waiting=waiting)
