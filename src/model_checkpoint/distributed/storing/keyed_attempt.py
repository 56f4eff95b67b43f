"""Keyed attempt: a save on its way into a storage, of one process or of many ranks.

Many ranks put their files under one attempt. What becomes of it is decided once, under the path of its verdict: whoever
creates that first has decided, rank 0 to publish or somebody else to give up. A verdict is swept some day, but never
before the mark of its attempt: who finds neither has come too late, and publishes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from model_checkpoint import forks
from model_checkpoint.distributed.storing.keyed_calls import KeyedCalls
from model_checkpoint.distributed.storing.keyed_files import (
    KeyedReader,
    KeyedRecord,
    KeyedWriter,
    data_path,
    decode_record,
    encode_record,
    record_path,
    trash_path,
)
from model_checkpoint.storage.contract.failures import attempt_over, name_taken, require_sealed
from model_checkpoint.storage.contract.names import TrashToken, check_name, check_new_file
from model_checkpoint.storage.contract.store import FileStat

GIVEN_UP = b"given up"

_living: set[tuple[str, str]] = set()  # attempts of this process, by storage and id
_guard = forks.lock()
forks.in_child(lambda: _living.clear())


def mark_path(attempt: str) -> str:
    """Where it is written down that an attempt is under way."""
    return f".attempts/{attempt}"


def verdict_path(attempt: str) -> str:
    """Where it is decided what becomes of an attempt of many ranks."""
    return f".verdicts/{attempt}"


def is_living(url: str, attempt: str) -> bool:
    """Whether an attempt is one of this process."""
    with _guard:
        return (url, attempt) in _living


class KeyedAttempt:
    """One attempt; see :class:`model_checkpoint.storage.contract.store.Attempt`."""

    _begun_here = True

    def __init__(self, calls: KeyedCalls, name: str, attempt: str, *, shared: bool = False) -> None:
        self._calls, self._name, self._attempt, self._shared = calls, name, attempt, shared
        self._where = f"{calls.url}/checkpoints/{name}"
        self._writers: dict[str, KeyedWriter] = {}
        self._linked: dict[str, tuple[str, int]] = {}
        self._over = False
        if self._begun_here:
            with _guard:
                _living.add((calls.url, attempt))

    def create(self, file: str, size: int) -> KeyedWriter:
        """Open a new file of ``size`` bytes."""
        self._require_open()
        check_new_file(file, (*self._writers, *self._linked), self._where)
        self._writers[file] = KeyedWriter(self._calls, data_path(self._attempt, file), size)
        return self._writers[file]

    def link(self, file: str, *, source: str, source_file: str, identity: str) -> bool:
        """Have a file of another checkpoint in common with it."""
        self._require_open()
        check_new_file(file, (*self._writers, *self._linked), self._where)
        found = _current(self._calls, source)
        known = None if found is None else found.files.get(source_file)
        if known is None or known[0] != identity:
            return False
        self._linked[file] = known
        return True

    def stamps(self) -> dict[str, FileStat]:
        """Stamps of the files staged so far, those of other ranks too."""
        return {file: FileStat(size=size, identity=path, links=1) for file, (path, size) in self._files().items()}

    def _files(self) -> dict[str, tuple[str, int]]:
        own = {file: (writer.path, writer.size) for file, writer in self._writers.items()} | self._linked
        if not self._shared:
            return own
        lead = data_path(self._attempt, "")
        others = {path: path.removeprefix(lead) for path in self._calls.list(lead)}
        return {file: (path, self._calls.look(path).size) for path, file in others.items() if file not in own} | own

    def flush(self) -> None:
        """Nothing: what was written is durable."""

    def open(self, file: str) -> KeyedReader:
        """Open a sealed file of the attempt, whoever wrote it."""
        self._require_open()
        path = data_path(self._attempt, check_name(file, self._where))
        return KeyedReader(self._calls, path, where=self._where, file=file)

    def drop(self, files: Sequence[str]) -> None:
        """Remove files of the attempt, whoever wrote them."""
        for file in files:
            self._calls.delete(data_path(self._attempt, check_name(file, self._where)))
            self._writers.pop(file, None)

    def publish(self, manifest: bytes, *, replace: bool = False, obsolete: Sequence[str] = ()) -> None:
        """Make the checkpoint visible."""
        self._require_open()
        require_sealed(self._where, self._writers)
        files, old, over = self._files(), None, None
        if replace:
            old, gone = _current(self._calls, self._name), {check_name(file, self._where) for file in obsolete}
            files = {file: at for file, at in (old.files if old else {}).items() if file not in gone} | files
            over = "" if old is None else old.attempt
        record = KeyedRecord(attempt=self._attempt, files=files, manifest=bytes(manifest), replace=replace, over=over)
        if self._shared and not self._decided(record):
            raise attempt_over(self._where)
        self._require_mark()
        with nullcontext() if self._shared else self._calls.gate(False):  # what was decided is carried out in any case
            placed = place(self._calls, self._name, record)
        if not placed:
            raise name_taken(self._where)
        if old is not None:  # after the switch: what is in the trash may be purged, and is in no one's place
            self._calls.write(trash_path(str(TrashToken.fresh(self._name))), encode_record(old))
        self._end()

    def _decided(self, record: KeyedRecord) -> bool:
        with self._calls.gate(True):
            return self._calls.create(verdict_path(self._attempt), encode_record(record))

    def _require_mark(self) -> None:
        """Raise if the attempt was given up and swept; one that somebody has carried out is in place."""
        if not self._calls.exists(mark_path(self._attempt)) and not is_placed(self._calls, self._name, self._attempt):
            raise attempt_over(self._where)

    def _end(self) -> None:
        self._over = True
        with _guard:
            _living.discard((self._calls.url, self._attempt))
        self._calls.delete(mark_path(self._attempt))

    def abort(self) -> None:
        """Remove everything staged."""
        if self._over:
            return
        for path in self._calls.list(data_path(self._attempt, "")):
            self._calls.delete(path)
        self._end()

    def _require_open(self) -> None:
        if self._over:
            raise attempt_over(self._where)


class JoinedKeyedAttempt(KeyedAttempt):
    """The attempt as another rank sees it: it puts files there, and decides nothing."""

    _begun_here = False

    def __init__(self, calls: KeyedCalls, name: str, attempt: str) -> None:
        super().__init__(calls, name, attempt, shared=True)

    def link(self, file: str, *, source: str, source_file: str, identity: str) -> bool:
        """Refused, so that the file is put once more: rank 0 finds what was put here, and nothing else."""
        return False

    def publish(self, manifest: bytes, *, replace: bool = False, obsolete: Sequence[str] = ()) -> None:
        """Refused: rank 0 publishes."""
        raise attempt_over(self._where)

    def abort(self) -> None:
        """Let go; whoever settles the attempt removes the files."""
        self._over = True


class KeyedMending(KeyedAttempt):
    """Files on their way into a checkpoint; see :class:`model_checkpoint.storage.contract.store.Mending`."""

    def finish(self, *, over: bytes, manifest: bytes | None = None) -> bool:
        """Put every file in its place, then the manifest, if there is one."""
        self._require_open()
        require_sealed(self._where, self._writers)
        old = _current(self._calls, self._name)
        if old is None or old.manifest != over:
            self.abort()
            return False
        new = self._files()
        replaced = {file: old.files[file] for file in new if file in old.files}
        if replaced:  # without a manifest it is no checkpoint that could be brought back
            gone = KeyedRecord(attempt=old.attempt, files=replaced, manifest=None)
            self._calls.write(trash_path(str(TrashToken.fresh(self._name))), encode_record(gone))
        kept = manifest or old.manifest
        record = KeyedRecord(attempt=old.attempt, files=old.files | new, manifest=kept, replace=True)
        place(self._calls, self._name, record)
        self._end()
        return True


def _current(calls: KeyedCalls, name: str) -> KeyedRecord | None:
    """The record of a checkpoint; None if there is none."""
    try:
        return decode_record(calls.read(record_path(name)), f"{calls.url}/checkpoints/{name}")
    except FileNotFoundError:
        return None


def place(calls: KeyedCalls, name: str, record: KeyedRecord) -> bool:
    """Put a record into its place; False if the name is taken."""
    data = encode_record(record)
    if record.replace:
        calls.write(record_path(name), data)
        return True
    if calls.create(record_path(name), data):
        return True
    found = _current(calls, name)
    return found is not None and found.attempt == record.attempt  # whoever settled it was quicker


def is_placed(calls: KeyedCalls, name: str, attempt: str) -> bool:
    """Whether the checkpoint of that name is of this attempt."""
    found = _current(calls, name)
    return found is not None and found.attempt == attempt


def decide(calls: KeyedCalls, name: str, attempt: str) -> bool:
    """Give an attempt up, or carry out what was decided before; whether it is published.

    One without a mark was over long ago: it was in place then, whatever has become of it since, or it never will be.
    And where somebody has saved over what this one was to replace, it counts as replaced by that.
    """
    if is_placed(calls, name, attempt):
        return True
    if calls.create(verdict_path(attempt), GIVEN_UP):
        return False
    verdict = calls.read(verdict_path(attempt))
    if verdict == GIVEN_UP:
        return False
    record = decode_record(verdict, f"{calls.url}/{verdict_path(attempt)}")  # rank 0 may have died before the last step
    if is_placed(calls, name, attempt) or not calls.exists(mark_path(attempt)) or _is_replaced(calls, name, record):
        return True
    return place(calls, name, record)


def _is_replaced(calls: KeyedCalls, name: str, record: KeyedRecord) -> bool:
    """Whether another attempt has come since this one was decided, and stands where it would go."""
    found = _current(calls, name)
    return record.over is not None and found is not None and found.attempt not in (record.over, record.attempt)


def settle(calls: KeyedCalls, name: str, attempt: str) -> bool:
    """End an attempt for good; whether it is published."""
    if decide(calls, name, attempt):
        return True
    if calls.exists(mark_path(attempt)):  # else others may have its files in common with what was published
        for path in calls.list(data_path(attempt, "")):
            calls.delete(path)
        calls.delete(mark_path(attempt))
    return False
