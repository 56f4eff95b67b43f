"""Keyed files: files of a storage, written whole and read by ranges, and the record that makes a checkpoint of them.

A file lies under a path of its own attempt and never changes. A checkpoint is one record: which files it has, where
they lie, and its manifest. So one write makes it, replaces it or takes it away, and two checkpoints may have a file in
common.
"""

from __future__ import annotations

import msgspec

from model_checkpoint.distributed.storing.keyed_calls import KeyedCalls
from model_checkpoint.errors import CorruptedCheckpoint
from model_checkpoint.storage.contract.failures import ended, file_gone
from model_checkpoint.storage.contract.names import MANIFEST
from model_checkpoint.storage.memory_attempts import MemoryWriter


class KeyedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint: the path and size of each file, and the manifest."""

    attempt: str
    files: dict[str, tuple[str, int]]
    manifest: bytes | None  # none for files that were replaced
    replace: bool = False
    over: str | None = None  # which attempt it replaces, "" for none; unknown in records of earlier versions


_DECODER = msgspec.msgpack.Decoder(KeyedRecord)  # made once: threads that load at once must not be the first


def record_path(name: str) -> str:
    """Where the record of a checkpoint lies."""
    return f"checkpoints/{name}/{MANIFEST}"


def trash_path(token: str) -> str:
    """Where the record of a deleted checkpoint lies."""
    return f".trash/{token}"


def data_path(attempt: str, file: str) -> str:
    """Where a file lies."""
    return f"data/{attempt}/{file}"


def encode_record(record: KeyedRecord) -> bytes:
    """A record as bytes."""
    return msgspec.msgpack.encode(record)


def decode_record(data: bytes, where: str) -> KeyedRecord:
    """The record in bytes; raise if they are none."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise CorruptedCheckpoint(
            f"{where}: the record of this checkpoint cannot be read ({error}): it was changed or damaged after the "
            "save. Load another one.",
            where,
        ) from error


class KeyedWriter(MemoryWriter):
    """One file being written: in memory, until the storage is handed all of it."""

    def __init__(self, calls: KeyedCalls, path: str, size: int) -> None:
        super().__init__(f"{calls.url}/{path}", size)
        self._calls, self.path, self.size = calls, path, size

    def _keep(self, size: int) -> None:
        """Hand the whole file to the storage."""
        self._calls.write(self.path, bytes(self.content[:size]))
        self.content, self.size = memoryview(b""), size


class KeyedReader:
    """One file; see :class:`model_checkpoint.storage.contract.store.Reader`."""

    def __init__(self, calls: KeyedCalls, path: str, *, where: str, file: str) -> None:
        self._calls, self._path, self._where, self._file = calls, path, where, file
        try:
            self._size = calls.look(path).size
        except FileNotFoundError:
            raise file_gone(where, file, listed=True) from None

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._size

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset``."""
        view = memoryview(buffer).cast("B")
        if not len(view):
            return
        try:
            data = self._calls.read(self._path, offset, offset + len(view))
        except FileNotFoundError:
            raise file_gone(self._where, self._file, listed=True) from None
        if len(data) != len(view):
            raise ended(self._where, self._file, wanted=range(offset, offset + len(view)), end=offset + len(data))
        view[:] = data

    def map(self) -> memoryview | None:
        """Nothing: a storage gives copies."""
        return None

    def close(self) -> None:
        """Nothing to let go of."""
