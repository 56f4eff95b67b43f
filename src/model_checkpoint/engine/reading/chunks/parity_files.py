"""Parity files: those of one checkpoint, opened and believed only as far as their digests go."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from model_checkpoint.engine.reading.chunks.open_readers import OpenReaders
from model_checkpoint.errors import CheckpointException, ChunkMismatch, ManifestInvalid, Truncated
from model_checkpoint.format import sha256_each
from model_checkpoint.format.parity import END_BYTES, ParityRecord, decode_record, record_span
from model_checkpoint.storage.contract.store import Reader, Store

_REMEMBERED = 4  # blocks that were checked a moment ago; neighbouring chunks ask for the same one


class ParityFiles(OpenReaders[str]):
    """The parity files of a checkpoint by their names, ``p-...`` and ``q-...``; a context manager.

    ``record`` is what they say of themselves, by the first that can be read; None if none can. ``problems`` has what
    is wrong with each file as a whole.
    """

    def __init__(self, store: Store, name: str, files: Sequence[str], where: str) -> None:
        super().__init__()
        self._store, self._name, self._where = store, name, where
        self.record: ParityRecord | None = None
        self.manifest: bytes | None = None
        self.problems: dict[str, CheckpointException] = {}
        self._files = {file.partition("-")[0]: file for file in files}
        self._blocks: OrderedDict[tuple[str, int], memoryview | None] = OrderedDict()
        for kind in self._files:
            self._open(kind)

    def _open(self, kind: str) -> None:
        file = self._files[kind]
        try:
            reader = self._readers[kind] = self._store.open(self._name, file)
            record, manifest = self._read_ending(reader, file)
        except CheckpointException as error:
            self.problems[file] = error
            return
        if self.record is None:
            self.record, self.manifest = record, manifest
        elif self.record != record:
            self.problems[file] = ManifestInvalid(
                f"{self._where}/{file}: belongs to other parity files than the one beside it. "
                "`mckpt repair` makes them anew.",
                self._where,
                file=file,
            )

    def _read_ending(self, reader: Reader, file: str) -> tuple[ParityRecord, bytes]:
        where = f"{self._where}/{file}"
        if reader.size < END_BYTES:
            raise Truncated(f"{where}: has {reader.size} bytes, too few for a parity file.", self._where, file=file)
        start, stop = record_span(_read(reader, reader.size - END_BYTES, END_BYTES), reader.size, where)
        record = decode_record(_read(reader, start, stop - start), where)
        if record.length + record.manifest_size != start:
            raise Truncated(
                f"{where}: has {start} bytes before its record, expected {record.length + record.manifest_size}: it "
                "was cut or grew. `mckpt repair` makes it anew.",
                self._where,
                file=file,
            )
        manifest = _read(reader, record.length, record.manifest_size)
        if hashlib.sha256(manifest).hexdigest() != record.manifest_sha256:
            raise ManifestInvalid(
                f"{where}: its copy of the manifest does not have the recorded digest. `mckpt repair` makes it anew.",
                self._where,
                file=file,
            )
        return record, manifest

    def sum_of(self, kind: str, start: int, stop: int) -> memoryview | None:
        """The bytes ``[start, stop)`` of one block of a sum; None if it is not what it was, or cannot be read."""
        if self.record is None or kind not in self.record.digests:
            return None
        number, offset = divmod(start, self.record.block)
        data = self._block(kind, number)
        return None if data is None else data[offset : offset + stop - start]

    def broken_blocks(self) -> Iterator[tuple[str, int, CheckpointException]]:
        """Read every body and tell each block that is not what it was, with its file and number."""
        if self.record is None:
            return
        for kind, file in self._files.items():
            if file in self.problems:
                continue
            for number in range(-(-self.record.length // self.record.block)):
                if self._block(kind, number) is None:
                    yield file, number, self._mismatch(file, number)

    def _mismatch(self, file: str, number: int) -> ChunkMismatch:
        return ChunkMismatch(
            f"{self._where}/{file}: block {number} of this parity file does not have the recorded digest. "
            "`mckpt repair` makes it anew.",
            self._where,
            file=file,
            chunk=number,
        )

    def _block(self, kind: str, number: int) -> memoryview | None:
        if (kind, number) not in self._blocks:
            self._blocks[kind, number] = self._checked_block(kind, number)
            while len(self._blocks) > _REMEMBERED:
                self._blocks.popitem(last=False)
        return self._blocks[kind, number]

    def _checked_block(self, kind: str, number: int) -> memoryview | None:
        record, reader = self.record, self._readers.get(kind)
        if record is None or reader is None:
            return None
        start = number * record.block
        try:
            data = _view(reader, start, min(record.block, record.length - start))
        except (CheckpointException, OSError):
            return None
        return data if sha256_each([data]) == [record.sha256_of(kind)[number]] else None


def _view(reader: Reader, start: int, size: int) -> memoryview:
    data = memoryview(bytearray(size))
    reader.read_into(start, data)
    return data


def _read(reader: Reader, start: int, size: int) -> bytes:
    return bytes(_view(reader, start, size))
