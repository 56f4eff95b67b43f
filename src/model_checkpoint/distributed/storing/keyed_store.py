"""Keyed store: a storage of the user's own as a place that keeps checkpoints, for one process or many ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import msgspec

from model_checkpoint.distributed.storing import keyed_sweep
from model_checkpoint.distributed.storing.keyed_attempt import (
    GIVEN_UP,
    JoinedKeyedAttempt,
    KeyedAttempt,
    KeyedMending,
    mark_path,
    place,
    settle,
    verdict_path,
)
from model_checkpoint.distributed.storing.keyed_calls import Gate, KeyedCalls
from model_checkpoint.distributed.storing.keyed_files import (
    KeyedReader,
    KeyedRecord,
    decode_record,
    encode_record,
    record_path,
    trash_path,
)
from model_checkpoint.distributed.storing.storage_contract import CheckpointStorage, FaultHandler
from model_checkpoint.errors import CheckpointNotFound, RootNotShared, StorageFailure
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.failures import (
    deletion_over,
    file_gone,
    name_taken_again,
    no_such_checkpoint,
    not_in_trash,
)
from model_checkpoint.storage.contract.names import MANIFEST, TrashToken, check_attempt, check_name, is_name
from model_checkpoint.storage.contract.sidecars import SidecarRead
from model_checkpoint.storage.contract.store import FileStat, Swept, Tell, Trashed, nobody

_SIDECARS = ".sidecars/"


class KeyedStore:
    """A storage that keeps checkpoints; see :class:`model_checkpoint.storage.contract.store.Store`.

    Each file passes through memory as a whole on its way in; it is read by ranges.

    Example:
        >>> import tempfile
        >>> from model_checkpoint.distributed import FolderStorage
        >>> store = KeyedStore(FolderStorage(tempfile.mkdtemp()))
        >>> store.stage("first", "attempt-1").publish(b"the manifest")
        >>> store.names(), store.read_manifest("first")
        (['first'], b'the manifest')
    """

    def __init__(self, storage: CheckpointStorage, handler: FaultHandler | None = None) -> None:
        url = getattr(storage, "url", "") or f"{type(storage).__name__}-{id(storage):x}"
        self._calls = KeyedCalls(storage, f"storage://{url.lstrip('/')}", handler)

    def retried(self, handler: FaultHandler) -> KeyedStore:
        """The same store, whose calls a fault handler repeats where that may help."""
        made = KeyedStore.__new__(KeyedStore)
        made._calls = dataclasses.replace(self._calls, handler=handler)
        return made

    def gated(self, gate: Gate) -> KeyedStore:
        """The same store, which publishes within ``gate``."""
        made = KeyedStore.__new__(KeyedStore)
        made._calls = dataclasses.replace(self._calls, gate=gate)
        return made

    @property
    def url(self) -> str:
        """What the storage is called in messages."""
        return self._calls.url

    def exists(self) -> bool:
        """Whether anything was ever kept here."""
        return any(self._calls.list(folder) for folder in ("checkpoints/", ".attempts/", ".trash/", "data/"))

    def names(self) -> list[str]:
        """Names of published checkpoints."""
        parts = [path.split("/") for path in self._calls.list("checkpoints/")]
        return [one[1] for one in parts if len(one) == 3 and one[2] == MANIFEST]

    def entries(self) -> list[str]:
        """The same: only a record has a name."""
        return self.names()

    def has(self, name: str) -> bool:
        """Whether ``name`` is published."""
        return is_name(name) and self._calls.exists(record_path(name))

    def _record(self, name: str) -> KeyedRecord:
        where = f"{self.url}/checkpoints/{check_name(name, self.url)}"
        try:
            return decode_record(self._calls.read(record_path(name)), where)
        except FileNotFoundError:
            raise no_such_checkpoint(where, self.url) from None

    def read_manifest(self, name: str) -> bytes:
        """The manifest of ``name``."""
        return self._record(name).manifest or b""

    def files(self, name: str) -> dict[str, int]:
        """Every file of ``name``, its manifest included, with its size."""
        record = self._record(name)
        return {file: size for file, (_, size) in record.files.items()} | {MANIFEST: len(record.manifest or b"")}

    def stamps(self, name: str) -> dict[str, FileStat]:
        """Every file of ``name`` with its stamp."""
        record, links = self._record(name), self._links()
        stamps = {
            file: FileStat(size=size, identity=path, links=links.get(path, 1))
            for file, (path, size) in record.files.items()
        }
        return stamps | {MANIFEST: FileStat(size=len(record.manifest or b""), identity=record_path(name), links=1)}

    def _links(self) -> dict[str, int]:
        """How many checkpoints, and deletions, have each file."""
        counts: dict[str, int] = {}
        for path in (*self._calls.list("checkpoints/"), *self._calls.list(".trash/")):
            try:
                files = decode_record(self._calls.read(path), f"{self.url}/{path}").files
            except FileNotFoundError:
                continue
            for at, _ in files.values():
                counts[at] = counts.get(at, 0) + 1
        return counts

    def open(self, name: str, file: str) -> KeyedReader:
        """Open one data file."""
        where = f"{self.url}/checkpoints/{check_name(name, self.url)}"
        check_name(file, where)
        if not self.has(name):
            raise file_gone(where, file, listed=None)
        known = self._record(name).files.get(file)
        if known is None:
            raise file_gone(where, file, listed=False)
        return KeyedReader(self._calls, known[0], where=where, file=file)

    def stage(self, name: str, attempt: str) -> KeyedAttempt:
        """Begin an attempt."""
        self._mark(name, attempt)
        return KeyedAttempt(self._calls, name, attempt)

    def mend(self, name: str, attempt: str) -> KeyedMending:
        """Begin to put files into a published checkpoint."""
        self._mark(name, attempt)
        return KeyedMending(self._calls, name, attempt)

    def _mark(self, name: str, attempt: str) -> None:
        check_name(name, self.url)
        path = mark_path(check_attempt(attempt, self.url))
        if not self._calls.create(path, name.encode()):
            where = f"{self.url}/{path}"
            raise StorageFailure(f"{where}: the attempt id is in use. Use a fresh one for each attempt.", where)

    def stage_shared(self, name: str, attempt: str) -> KeyedAttempt:
        """Begin an attempt that other ranks join."""
        self._mark(name, attempt)
        return KeyedAttempt(self._calls, name, attempt, shared=True)

    def join(self, name: str, attempt: str) -> JoinedKeyedAttempt:
        """Take part in the attempt of another rank."""
        where = f"{self.url}/checkpoints/{check_name(name, self.url)}"
        if not self._calls.exists(mark_path(check_attempt(attempt, self.url))):
            raise RootNotShared(
                f"{where}: what rank 0 has begun is not there on this rank, so the ranks do not write to the same "
                "storage. Give all of them one that they share.",
                where,
            )
        return JoinedKeyedAttempt(self._calls, name, attempt)

    def settle(self, name: str, attempt: str) -> bool:
        """End an attempt of many ranks for good; whether it is published."""
        return settle(self._calls, check_name(name, self.url), check_attempt(attempt, self.url))

    def free_bytes(self) -> int | None:
        """Nobody can tell."""
        return None

    def discard(self, name: str) -> Trashed:
        """Move a published checkpoint to the trash."""
        record, token = self._record(name), TrashToken.fresh(name)
        self._calls.write(trash_path(str(token)), encode_record(record))
        with self._calls.gate(False):
            self._calls.delete(record_path(name))
        return _trashed(token, record)

    def plan_discard(self, name: str) -> str:
        """A token for the deletion of ``name``."""
        return str(TrashToken.fresh(check_name(name, self.url)))

    def discard_planned(self, token: str) -> None:
        """Move a published checkpoint to the trash, unless that was given up."""
        name = TrashToken.parse(token, self.url).name
        record = self._record(name)
        with self._calls.gate(True):
            decided = self._calls.create(verdict_path(token), record.attempt.encode())
        if not decided:
            raise deletion_over(f"{self.url}/checkpoints/{name}")
        self._carry_out(token, record.attempt)

    def settle_discard(self, token: str) -> bool:
        """End a deletion of many ranks for good; whether the checkpoint is gone."""
        name = TrashToken.parse(token, self.url).name
        if not self.has(name):
            return True
        if self._calls.create(verdict_path(token), GIVEN_UP):
            return not self.has(name)  # a verdict that was carried out meanwhile is gone by now
        try:
            verdict = self._calls.read(verdict_path(token))
        except FileNotFoundError:
            return True
        if verdict == GIVEN_UP:
            return False
        self._carry_out(token, verdict.decode())
        return True

    def _carry_out(self, token: str, attempt: str) -> None:
        """Delete the version that was decided about; whoever else does the same may be quicker."""
        name = TrashToken.parse(token, self.url).name
        try:
            record = self._record(name)
        except CheckpointNotFound:
            record = None
        if record is not None and record.attempt == attempt:
            self._calls.write(trash_path(token), encode_record(record))
            self._calls.delete(record_path(name))
        self._calls.delete(verdict_path(token))

    def trash(self) -> list[Trashed]:
        """What can be brought back, in the order in which it was deleted."""
        found = [TrashToken.find(path.removeprefix(".trash/")) for path in self._calls.list(".trash/")]
        tokens = sorted((token for token in found if token is not None), key=lambda token: token.rank)
        held = [(token, self._gone(str(token))) for token in tokens]
        return [_trashed(token, record) for token, record in held if record is not None and record.manifest is not None]

    def _gone(self, token: str) -> KeyedRecord | None:
        where = f"{self.url}/.trash/{TrashToken.parse(token, self.url)}"
        try:
            return decode_record(self._calls.read(trash_path(token)), where)
        except FileNotFoundError:
            return None

    def _deleted(self, token: str) -> KeyedRecord:
        """The record of a deleted checkpoint; what was only replaced in one is none."""
        record = self._gone(token)
        if record is None or record.manifest is None:
            raise not_in_trash(f"{self.url}/.trash/{token}", self.url)
        return record

    def read_trashed(self, token: str) -> bytes:
        """The manifest of what lies in the trash under ``token``."""
        return self._deleted(token).manifest or b""

    def bring_back(self, token: str) -> str:
        """Undo a ``discard``."""
        record, name = self._deleted(token), TrashToken.parse(token, self.url).name
        if self.has(name) or not place(self._calls, name, msgspec.structs.replace(record, replace=False)):
            raise name_taken_again(f"{self.url}/checkpoints/{name}")
        self._calls.delete(trash_path(str(token)))
        return name

    def sweep(self, graces: Graces, *, dry_run: bool = False, tell: Tell = nobody) -> Swept:
        """Remove leavings of dead attempts and trash past its grace."""
        return keyed_sweep.sweep(self._calls, graces, dry_run=dry_run, tell=tell)

    def read_sidecars(self, word: str = "") -> Iterator[SidecarRead]:
        """Every key that has ``word`` in it, with its bytes."""
        for path in self._calls.list(_SIDECARS):
            if word in path.removeprefix(_SIDECARS):
                yield path.removeprefix(_SIDECARS), self._calls.read(path)

    def write_sidecar(self, key: str, data: bytes) -> None:
        """Keep ``data`` under ``key``."""
        self._calls.write(_SIDECARS + check_name(key, self.url), bytes(data))

    def remove_sidecar(self, key: str) -> None:
        """Forget ``key``."""
        self._calls.delete(_SIDECARS + check_name(key, self.url))


def _trashed(token: TrashToken, record: KeyedRecord) -> Trashed:
    nbytes = sum(size for _, size in record.files.values()) + len(record.manifest or b"")
    return Trashed(name=token.name, token=str(token), deleted=token.deleted, nbytes=nbytes)
