"""Medium: the data files of one checkpoint, opened, measured and read chunk by chunk, never believed unverified."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType

import xxhash

from model_checkpoint.engine.info import path_of
from model_checkpoint.engine.workers import Pace, run_all
from model_checkpoint.errors import ChunkMismatch, TrailingData, Truncated
from model_checkpoint.format import check_entries, check_files, check_header, sha256_of, xxh3_of
from model_checkpoint.manifest import Entry, FileRecord, Manifest
from model_checkpoint.options import ReaderLimits
from model_checkpoint.plan import ChunkRead
from model_checkpoint.storage.store import Reader, Store

_LIMITS = ReaderLimits()
_MOST_READERS = 16  # one chunk of memory each


class Medium:
    """The open files of one checkpoint; a context manager."""

    def __init__(self, store: Store, manifest: Manifest, *, full: bool) -> None:
        self.where = path_of(store, manifest.name)
        self.full = full
        self._store, self._manifest = store, manifest
        self._readers: dict[int, Reader] = {}
        self._xxh3: dict[int, list[bytes]] = {}
        self._sha256: dict[int, list[bytes]] = {}
        self._by_file: dict[int, list[Entry]] = {}

    def __enter__(self) -> Medium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reader in self._readers.values():
            reader.close()

    def prepare(self, entries: Iterable[Entry]) -> None:
        """Open the files that hold ``entries`` and check manifest, sizes and headers; no data is read yet."""
        wanted = list(entries)
        check_files(self._manifest.files, self.where)
        check_entries(wanted, self._manifest.files, self.where, _LIMITS)
        for index in sorted({entry.file for entry in wanted}):
            self.open(index)
            self.check_header(index)

    def open(self, index: int) -> Reader:
        """Open one data file and compare its size with the record."""
        if index not in self._readers:
            record = self._manifest.files[index]
            self._readers[index] = open_sized(self._store, self._manifest.name, record, self.where)
            self._xxh3[index], self._sha256[index] = xxh3_of(record), sha256_of(record)
        return self._readers[index]

    def check_header(self, index: int) -> None:
        """Verify chunk 0 of a file and that it says what the manifest says."""
        record = self._manifest.files[index]
        header = bytearray(record.ends[0])
        self._readers[index].read_into(0, memoryview(header))
        self.verify_chunk(index, 0, memoryview(header))
        where = f"{self.where}/{record.name}"
        check_header(bytes(header), self._entries_of(index), size=record.size, where=where, limits=_LIMITS)

    def _entries_of(self, index: int) -> list[Entry]:
        """The entries of one file; sorted by file once, since there may be a million of them in many files."""
        if not self._by_file:
            for entry in self._manifest.entries:
                self._by_file.setdefault(entry.file, []).append(entry)
        return self._by_file.get(index, [])

    def verify_chunk(self, index: int, chunk: int, data: memoryview) -> None:
        """Raise unless ``data`` has the digest recorded for that chunk."""
        good = xxhash.xxh3_128_digest(data) == self._xxh3[index][chunk]
        if good and self.full:
            good = hashlib.sha256(data).digest() == self._sha256[index][chunk]
        if not good:
            raise self._mismatch(index, chunk)

    def _mismatch(self, index: int, chunk: int) -> ChunkMismatch:
        record = self._manifest.files[index]
        start = record.ends[chunk - 1] if chunk else 0
        names = tensors_in(self._manifest.entries, index, start, record.ends[chunk])
        what = "its header" if chunk == 0 else f"tensor {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
        return ChunkMismatch(
            f"{self.where}/{record.name}: chunk {chunk} (bytes {start} to {record.ends[chunk]}), which holds {what}, "
            "does not have the recorded digest: it was changed or damaged after the save. "
            "Load an older step, or pass fallback=True; `mckpt verify` lists all damage.",
            self.where,
            file=record.name,
            tensor="" if chunk == 0 or not names else names[0],
            chunk=chunk,
        )

    def read_chunks(
        self,
        reads: Sequence[ChunkRead],
        place: Callable[[ChunkRead], memoryview | None],
        take: Callable[[ChunkRead, memoryview], None],
    ) -> None:
        """Read and verify ``reads`` in a few threads.

        ``place`` may offer memory for a whole chunk, to be read into directly; else a scratch buffer is used.
        ``take`` is called with each chunk only after it matched.
        """
        longest = max((read.stop - read.start for read in reads), default=0)
        pace = Pace(most=_MOST_READERS)

        def worker(items: Iterator[ChunkRead]) -> None:
            scratch = memoryview(mmap.mmap(-1, longest + 2 * mmap.PAGESIZE))
            for read in items:
                room = place(read)
                with pace.waiting():
                    data = self._read_pages(read, scratch) if room is None else self._read_exactly(read, room)
                self.verify_chunk(read.file, read.chunk, data)
                take(read, data)

        for index in sorted({read.file for read in reads}):
            self.open(index)
        run_all(worker, reads, pace=pace)

    def _read_exactly(self, read: ChunkRead, room: memoryview) -> memoryview:
        self._readers[read.file].read_into(read.start, room)
        return room

    def _read_pages(self, read: ChunkRead, scratch: memoryview) -> memoryview:
        """Read a chunk with the pages it shares: aligned requests need no second copy on their way from a cold disk."""
        reader, page = self._readers[read.file], mmap.PAGESIZE
        lower, upper = read.start // page * page, min(reader.size, -(-read.stop // page) * page)
        reader.read_into(lower, scratch[: upper - lower])
        return scratch[read.start - lower : read.stop - lower]

    def map_file(self, index: int) -> memoryview | None:
        """Map one data file, where that is safe."""
        return self.open(index).map()


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


def tensors_in(entries: Sequence[Entry], file: int, start: int, stop: int) -> list[str]:
    """Names of the tensors that have bytes in ``[start, stop)`` of a file."""
    return [e.name for e in entries if e.file == file and e.start < stop and e.stop > start]
