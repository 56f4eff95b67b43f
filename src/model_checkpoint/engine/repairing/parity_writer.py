"""Parity writer: the parity files of a checkpoint, made from its files as they are stored.

Each byte is read once, a window of every column at a time, and compared with its xxh3 on the way, so that no parity is
made of damaged bytes. The files join the checkpoint when they are whole and on the medium; it is not touched otherwise.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import xxhash

from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.common.pages import Bytes, new_slab
from model_checkpoint.engine.reading.chunks.chunk_reader import open_sized
from model_checkpoint.engine.reading.chunks.stored_chunks import StoredChunk, stored_chunks
from model_checkpoint.engine.repairing.file_stream import FileStream
from model_checkpoint.engine.root.rank_manifests import read_summary
from model_checkpoint.errors import ChunkMismatch
from model_checkpoint.format import add_up, check_files, sha256_each
from model_checkpoint.format.digests import SHA_BYTES
from model_checkpoint.format.parity import (
    BLOCK_BYTES,
    ColumnFile,
    ParityRecord,
    body_length,
    ending,
    parity_record,
    stand,
)
from model_checkpoint.manifest import PARITY_SUMS, FileRecord, Summary
from model_checkpoint.options import MIB, ReaderLimits
from model_checkpoint.storage.contract.store import Buffering, Reader, Store

log = logging.getLogger("model_checkpoint.repair")

WINDOW_BYTES = MIB  # of each column at a time
_FAR_WINDOW_BYTES = 4 * MIB  # of each column at a time where every request takes its time; a block has whole ones


def make_parity(store: Store, name: str) -> int:
    """Make the parity files that the manifest of ``name`` asks for; return their bytes, none if there is no wish.

    Raises:
        ChunkMismatch: the checkpoint is damaged already; nothing was made.
    """
    started, where = time.monotonic(), path_of(store, name)
    raw = store.read_manifest(name)
    summary = read_summary(store, name, raw)
    if not summary.parity_files:
        return 0
    check_files((*summary.files, *summary.extras), where, ReaderLimits())
    sums = _ParitySums(store, name, summary, raw)
    mending = store.mend(name, uuid.uuid4().hex)
    try:
        streams = [FileStream(mending.create(file, sums.file_size)) for file in summary.parity_files]
        sums.write(streams)
        joined = mending.finish(over=raw)
    except BaseException:
        mending.abort()
        raise
    if not joined:
        log.info("%s: was replaced or deleted while its parity was made", where)
        return 0
    seconds = time.monotonic() - started
    log.info("%s: made %s parity of %d bytes in %.3f s", where, summary.parity, sums.read, seconds)
    return sums.file_size * len(summary.parity_files)


class _ParitySums:
    """The sums of one checkpoint's columns, block by block."""

    def __init__(self, store: Store, name: str, summary: Summary, manifest: bytes) -> None:
        self._store, self._name, self._summary, self._manifest = store, name, summary, manifest
        self._records = {record.name: record for record in (*summary.files, *summary.extras)}
        self._columns = stand({record.name: record.size for record in self._records.values()})
        self._kinds = PARITY_SUMS[summary.parity]
        self._length = body_length(self._columns)
        blocks = -(-self._length // BLOCK_BYTES)
        blank = [bytes(SHA_BYTES)] * blocks
        self.file_size = self._length + len(ending(self._record([blank] * len(self._kinds)), manifest))
        self.read = sum(record.size for record in self._records.values())

    def _record(self, digests: Sequence[Sequence[bytes]]) -> ParityRecord:
        return parity_record(
            scheme=self._summary.parity,
            id=self._summary.id,
            attempt=self._summary.attempt,
            columns=self._columns,
            digests=dict(zip(self._kinds, digests, strict=True)),
            manifest=self._manifest,
        )

    def write(self, streams: Sequence[FileStream]) -> None:
        """Write every body and what stands behind it, and seal the files."""
        digests: list[list[bytes]] = [[] for _ in streams]
        for blocks in self._blocks():
            for each, stream, digest, block in zip(digests, streams, sha256_each(blocks), blocks, strict=True):
                each.append(digest)
                stream.write(block)
        tail = memoryview(ending(self._record(digests), self._manifest))
        for stream in streams:
            stream.write(tail)
            stream.close()

    def _blocks(self) -> Iterator[list[memoryview]]:
        """The next block of each sum."""
        far = isinstance(self._store, Buffering)
        window = _FAR_WINDOW_BYTES if far else WINDOW_BYTES
        sums = [new_slab(BLOCK_BYTES) for _ in self._kinds]
        rooms = [new_slab(window) for _ in self._columns]
        with ExitStack() as stack:
            columns = [_Column(self, column, stack) for column in self._columns]
            pool = stack.enter_context(ThreadPoolExecutor(len(columns), "mckpt-parity")) if far and columns else None
            for start in range(0, self._length, BLOCK_BYTES):
                stop = min(self._length, start + BLOCK_BYTES)
                for at in range(start, stop, window):
                    size = min(window, stop - at)
                    filled = [room[:size] for room in rooms]
                    list((pool.map if pool is not None else map)(_Column.fill, columns, filled))
                    parts = [one[at - start : at - start + size].data for one in sums]
                    add_up([room.data for room in filled], parts[0], parts[1] if len(parts) > 1 else None)
                yield [one[: stop - start].data for one in sums]

    def open(self, placed: ColumnFile, stack: ExitStack) -> tuple[Reader, FileRecord]:
        """Open one file of a column until the end."""
        record = self._records[placed.name]
        reader = open_sized(self._store, self._name, record, path_of(self._store, self._name))
        stack.callback(reader.close)
        return reader, record


class _Column:
    """Files one behind the other, read from first to last, then zeros."""

    def __init__(self, sums: _ParitySums, files: Sequence[ColumnFile], stack: ExitStack) -> None:
        self._sums, self._files, self._stack = sums, iter(files), stack
        self._file: _CheckedFile | None = self._next()

    def _next(self) -> _CheckedFile | None:
        placed = next(self._files, None)
        return None if placed is None else _CheckedFile(*self._sums.open(placed, self._stack))

    def fill(self, room: Bytes) -> None:
        """Fill ``room`` with the next bytes."""
        done = 0
        while self._file is not None and done < len(room):
            done += self._file.read(room[done:])
            if self._file.left == 0:
                self._file = self._next()
        room[done:] = 0


class _CheckedFile:
    """One file read from first to last byte; each chunk must have its digest when its last byte has been read."""

    def __init__(self, reader: Reader, record: FileRecord) -> None:
        self._reader, self._record, self._at = reader, record, 0
        self._chunks = iter(stored_chunks(record))
        self._chunk: StoredChunk | None = next(self._chunks)
        self._digest = xxhash.xxh3_128()
        self._number = 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return self._record.size - self._at

    def read(self, room: Bytes) -> int:
        """Fill ``room``, or as much of it as there are bytes; return how many."""
        size = min(len(room), self.left)
        data = room[:size].data
        self._reader.read_into(self._at, data)
        done = 0
        while done < size and self._chunk is not None:
            taken = min(size - done, self._chunk.stop - self._at)
            self._digest.update(data[done : done + taken])
            done, self._at = done + taken, self._at + taken
            if self._at == self._chunk.stop:
                self._compare(self._chunk)
        return size

    def _compare(self, chunk: StoredChunk) -> None:
        if self._digest.digest() != chunk.xxh3:
            raise ChunkMismatch(
                f"{self._record.name}: chunk {self._number} does not have the recorded digest, so no parity is made "
                "of it. Run `mckpt verify`, and save again.",
                file=self._record.name,
                chunk=self._number,
            )
        self._chunk, self._number = next(self._chunks, None), self._number + 1
        self._digest = xxhash.xxh3_128()
