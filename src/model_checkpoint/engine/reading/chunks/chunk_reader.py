"""Chunk reader: the data files of one checkpoint, opened, measured, read by chunks, never believed unverified."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import xxhash

from model_checkpoint.engine.common.aligned_memory import aligned_memory
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.common.workers import Pace, run_all
from model_checkpoint.engine.reading.chunks.open_readers import OpenReaders
from model_checkpoint.errors import CheckpointException, ChunkMismatch, TrailingData, Truncated
from model_checkpoint.format import (
    RAW,
    FrameBroken,
    check_entries,
    check_files,
    check_header,
    decompress,
    frame_entries,
    is_intact,
    sha256_each,
    sha256_of,
    stored_xxh3,
    xxh3_of,
)
from model_checkpoint.manifest import Entry, FileRecord, Manifest
from model_checkpoint.options import ReaderLimits
from model_checkpoint.plan import ChunkRead
from model_checkpoint.storage.contract.store import CachedReader, Reader, Store

_LIMITS = ReaderLimits()
_MOST_READERS = 16  # one chunk of memory each
_LANES = 3  # chunks whose SHA-256 is computed side by side

PlaceChunk = Callable[[ChunkRead], memoryview | None]
TakeChunk = Callable[[ChunkRead, memoryview], None]
_Blame = Callable[[ChunkRead, Exception], None]


class _Callers(NamedTuple):
    """Where a chunk goes, who takes it, and who hears of one that cannot be had."""

    place: PlaceChunk
    take: TakeChunk
    blame: _Blame


def _raise(_: ChunkRead, error: Exception) -> None:
    raise error


class ChunkReader(OpenReaders[int]):
    """The open files of one checkpoint; a context manager."""

    def __init__(self, store: Store, manifest: Manifest, *, full: bool) -> None:
        super().__init__()
        self.where = path_of(store, manifest.name)
        self.full = full
        self._store, self._manifest = store, manifest
        self._raw: dict[int, Reader] = {}  # those of files without compressed chunks
        self._xxh3: dict[int, list[bytes]] = {}
        self._sha256: dict[int, list[bytes]] = {}
        self._by_file: dict[int, list[Entry]] = {}
        self._stored = threading.local()

    def prepare(self, entries: Iterable[Entry]) -> None:
        """Open the files that hold ``entries`` and check manifest, sizes and headers; no data is read yet."""
        wanted = list(entries)
        check_files(self._manifest.files, self.where, _LIMITS)
        check_entries(wanted, self._manifest.files, self.where, _LIMITS)
        self.open_checked(wanted)

    def open_checked(self, entries: Iterable[Entry]) -> None:
        """Open the files that hold ``entries``, of which the manifest has been checked, and check sizes and headers."""
        for index in sorted({entry.file for entry in entries}):
            self.open(index)
            self.check_header(index)

    def open(self, index: int) -> Reader:
        """Open one data file and compare its size with the record."""
        if index not in self._readers:
            record = self._manifest.files[index]
            reader = self._readers[index] = open_sized(self._store, self._manifest.name, record, self.where)
            if not record.frames:
                self._raw[index] = reader
            self._xxh3[index] = xxh3_of(record)
            if self.full:
                self._sha256[index] = sha256_of(record)
        return self._readers[index]

    def check_header(self, index: int) -> None:
        """Verify chunk 0 of a file and that it says what the manifest says."""
        record = self._manifest.files[index]
        header = bytearray(record.ends[0])
        self.read_chunk(index, 0, memoryview(header))
        mine = frame_entries(record) if record.frames else self._entries_of(index)
        check_header(bytes(header), mine, size=record.size, where=f"{self.where}/{record.name}", limits=_LIMITS)

    def _entries_of(self, index: int) -> list[Entry]:
        """The entries of one file; sorted by file once, since there may be a million of them in many files."""
        if not self._by_file:
            for entry in self._manifest.entries:
                self._by_file.setdefault(entry.file, []).append(entry)
        return self._by_file.get(index, [])

    def read_chunk(self, index: int, chunk: int, data: memoryview) -> None:
        """Fill ``data`` with one chunk that is stored as it is, as headers and the parts of ranks are; verify it."""
        start = self._start_of(index, chunk)
        self.open(index).read_into(start, data)
        if not self.is_healthy(ChunkRead(index, chunk, start, start + len(data), []), data):
            raise self._mismatch(index, chunk)

    def _unpack(self, index: int, chunk: int, data: memoryview) -> None:
        """Read a frame, check its stored bytes, and only then unpack it, to no more than ``data`` holds."""
        frame = self._manifest.files[index].frames[chunk]
        stored = _scratch(self._stored, frame.stop - frame.start)
        self.open(index).read_into(frame.start, stored)
        if xxhash.xxh3_128_digest(stored) != stored_xxh3(frame):
            raise self._mismatch(index, chunk)
        import numpy as np  # which no file without compressed chunks needs

        try:
            decompress(stored, np.frombuffer(data, dtype=np.uint8), frame.width)
        except FrameBroken as error:
            raise self._mismatch(index, chunk, because=f" ({error})") from error

    def is_healthy(self, read: ChunkRead, data: memoryview) -> bool:
        """Whether ``data``, which may come from elsewhere, has the digest recorded for that chunk."""
        return all(self._match([read], [data]))

    def _mismatch(self, index: int, chunk: int, because: str = "") -> ChunkMismatch:
        record, start = self._manifest.files[index], self._start_of(index, chunk)
        names = tensors_of_chunk(self._manifest.entries, index, start, record.ends[chunk])
        what = "its header" if chunk == 0 else f"tensor {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
        return ChunkMismatch(
            f"{self.where}/{record.name}: chunk {chunk} (bytes {start} to {record.ends[chunk]}), which holds {what}, "
            f"does not have the recorded digest{because}: it was changed or damaged after the save. "
            "Load an older step, or pass fallback=True; `mckpt verify` lists all damage.",
            self.where,
            file=record.name,
            tensor="" if chunk == 0 or not names else names[0],
            chunk=chunk,
        )

    def is_far(self, index: int) -> bool:
        """Whether to read a file again takes the medium: it is not in a cache of this machine, nor will it be."""
        return _is_far(self.open(index))

    @property
    def reads_far(self) -> bool:
        """Whether any file that is open is read so."""
        return any(map(_is_far, self._readers.values()))

    def share(self, reads: Sequence[ChunkRead]) -> None:
        """Say that others on this machine want what ``reads`` bring, so that it is not read from the medium again."""
        for index in sorted({read.file for read in reads}):
            reader = self.open(index)
            if isinstance(reader, CachedReader):
                reader.go_through_cache()

    def read_chunks(
        self,
        reads: Sequence[ChunkRead],
        place: PlaceChunk,
        take: TakeChunk,
        *,
        blame: _Blame = _raise,
    ) -> None:
        """Read and verify ``reads`` in a few threads, several chunks side by side where SHA-256 is compared too.

        ``place`` may offer memory for a whole chunk, to be read into directly; else a scratch buffer is used.
        ``take`` is called with each chunk only after it matched, ``blame`` with the error of one that cannot be had.
        """
        if not reads:
            return
        lanes = _LANES if self.full else 1
        room = max(read.stop - read.start for read in reads) + 2 * mmap.PAGESIZE
        pace = Pace(most=_MOST_READERS // lanes)
        work, callers = self._side_by_side if self.full else self._one_by_one, _Callers(place, take, blame)

        def worker(items: Iterator[ChunkRead]) -> None:
            work(items, aligned_memory(lanes * room), pace, callers)

        for index in sorted({read.file for read in reads}):
            self.open(index)
        run_all(worker, reads, pace=pace)

    def _one_by_one(self, reads: Iterator[ChunkRead], slab: memoryview, pace: Pace, callers: _Callers) -> None:
        """Read, hash, hand on: as little as possible in between, since nothing of it is in the caches any more."""
        place, take, blame = callers
        for read in reads:
            try:
                data = self._fetch(read, place(read), slab, pace)
            except (CheckpointException, OSError) as error:
                blame(read, error)
                continue
            if self._is_intact(read, data):
                take(read, data)
            else:
                blame(read, self._mismatch(read.file, read.chunk))

    def _side_by_side(self, reads: Iterator[ChunkRead], slab: memoryview, pace: Pace, callers: _Callers) -> None:
        """Read a few, take the SHA-256 of all of them at once, hand them on."""
        place, take, blame = callers
        room = len(slab) // _LANES
        while group := list(islice(reads, _LANES)):
            found: list[tuple[ChunkRead, memoryview]] = []
            for lane, read in enumerate(group):
                try:
                    scratch = slab[lane * room : (lane + 1) * room]
                    found.append((read, self._fetch(read, place(read), scratch, pace)))
                except (CheckpointException, OSError) as error:
                    blame(read, error)
            good = self._match([read for read, _ in found], [data for _, data in found])
            for (read, data), fine in zip(found, good, strict=True):
                take(read, data) if fine else blame(read, self._mismatch(read.file, read.chunk))

    def _match(self, reads: Sequence[ChunkRead], data: Sequence[memoryview]) -> list[bool]:
        """Whether each chunk, or what was read of it, has the digests recorded for it."""
        good = [self._is_intact(read, found) for read, found in zip(reads, data, strict=True)]
        if self.full:
            digests = zip(good, reads, sha256_each(data), strict=True)
            good = [same and sha == self._sha256[read.file][read.chunk] for same, read, sha in digests]
        return good

    def _is_intact(self, read: ChunkRead, data: memoryview) -> bool:
        record = self._manifest.files[read.file]
        start, stop = record.ends[read.chunk - 1] if read.chunk else 0, record.ends[read.chunk]
        if not self.full and read.stop - read.start < stop - start and record.subchunks:
            return is_intact(record, read.chunk, read.start - start, data)
        return xxhash.xxh3_128_digest(data) == self._xxh3[read.file][read.chunk]

    def _fetch(self, read: ChunkRead, room: memoryview | None, scratch: memoryview, pace: Pace) -> memoryview:
        """Bring one chunk into ``room``, or else into ``scratch``, unpacked if it is stored compressed."""
        raw = self._raw.get(read.file)
        if raw is not None and room is None and not pace.learning:  # the usual case, with little around it
            return _read_pages(raw, read.start, read.stop, scratch)
        if self._is_compressed(read.file, read.chunk):
            data = scratch[: read.stop - read.start] if room is None else room
            self._unpack(read.file, read.chunk, data)
            return data
        frames = self._manifest.files[read.file].frames
        start = frames[read.chunk].start if frames else read.start
        reader = self._readers[read.file]
        with pace.waiting(cached=not _is_far(reader)):
            if room is None:
                return _read_pages(reader, start, start + read.stop - read.start, scratch)
            reader.read_into(start, room)
            return room

    def _is_compressed(self, index: int, chunk: int) -> bool:
        frames = self._manifest.files[index].frames
        return bool(frames) and frames[chunk].codec != RAW

    def _start_of(self, index: int, chunk: int) -> int:
        return self._manifest.files[index].ends[chunk - 1] if chunk else 0

    def map_file(self, index: int) -> memoryview | None:
        """Map one data file, where that is safe and its bytes are as they were."""
        return None if self._manifest.files[index].frames else self.open(index).map()


def _is_far(reader: Reader) -> bool:
    return not isinstance(reader, CachedReader) or reader.around_cache


def _read_pages(reader: Reader, start: int, stop: int, scratch: memoryview) -> memoryview:
    """Read bytes with the pages they share: aligned requests need no second copy on their way from a cold disk."""
    page = mmap.PAGESIZE
    lower, upper = start // page * page, min(reader.size, -(-stop // page) * page)
    reader.read_into(lower, scratch[: upper - lower])
    return scratch[start - lower : stop - lower]


def _scratch(local: threading.local, size: int) -> memoryview:
    """A buffer of this thread, reused: fresh pages cost more than the copy."""
    buffer: bytearray | None = getattr(local, "buffer", None)
    if buffer is None or len(buffer) < size:
        buffer = local.buffer = bytearray(size)
    return memoryview(buffer)[:size]


def open_sized(store: Store, name: str, record: FileRecord, where: str) -> Reader:
    """Open a file and refuse it when its size is not the recorded one."""
    reader = store.open(name, record.name)
    if reader.size == record.size:
        return reader
    reader.close()
    kind = Truncated if reader.size < record.size else TrailingData
    raise kind(
        f"{where}/{record.name}: has {reader.size} bytes, the manifest says {record.size}: it was changed or damaged "
        "after the save. Load an older step, or pass fallback=True.",
        where,
        file=record.name,
    )


def tensors_of_chunk(entries: Sequence[Entry], file: int, start: int, stop: int) -> list[str]:
    """Names of the tensors that have bytes in ``[start, stop)`` of a file."""
    return [e.name for e in entries if e.file == file and e.start < stop and e.stop > start]


class PlainChunk(NamedTuple):
    """A piece of a file and whether it is as it was written; ``data`` is good until the next one is asked for."""

    number: int
    start: int
    data: memoryview
    healthy: bool


def read_plain(store: Store, manifest: Manifest, record: FileRecord, *, full: bool) -> Iterator[PlainChunk]:
    """Read one file from its start to its end; with ``full`` SHA-256 is compared, else xxh3."""
    reader = open_sized(store, manifest.name, record, path_of(store, manifest.name))
    try:
        wanted = sha256_of(record) if full else xxh3_of(record)
        starts = [0, *record.ends[:-1]]
        buffers: list[bytearray] = []
        for first in range(0, len(starts), _LANES):
            numbers = range(first, min(first + _LANES, len(starts)))
            buffers = buffers or [bytearray(max(record.ends[n] - starts[n] for n in numbers)) for _ in numbers]
            found = [memoryview(buffers[n - first])[: record.ends[n] - starts[n]] for n in numbers]
            for number, data in zip(numbers, found, strict=True):
                reader.read_into(starts[number], data)
            digests = sha256_each(found) if full else [xxhash.xxh3_128_digest(data) for data in found]
            for number, data, digest in zip(numbers, found, digests, strict=True):
                yield PlainChunk(number, starts[number], data, digest == wanted[number])
    finally:
        reader.close()
