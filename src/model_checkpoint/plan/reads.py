"""Reads: which chunks of which files hold the bytes a load wants."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from model_checkpoint.manifest import SUBCHUNK_BYTES, Entry, FileRecord


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Bytes of one entry that lie in one chunk."""

    entry: int
    into: int  # offset in the entry
    start: int  # offset in the chunk
    length: int


class ChunkRead(msgspec.Struct, frozen=True, gc=False):
    """One chunk to read and verify, or some parts of it that have digests of their own, and what to take from it."""

    file: int
    chunk: int
    start: int  # byte range in the file
    stop: int
    pieces: list[Piece]


def plan_reads(
    needed: Iterable[int],
    entries: Sequence[Entry],
    files: Sequence[FileRecord],
    *,
    ranges: Mapping[int, Sequence[tuple[int, int]]] | None = None,
    subchunks: bool = False,
) -> list[ChunkRead]:
    """List the chunks that hold ``needed`` entries, or only the byte ``ranges`` of those named there, in file order.

    Offsets in pieces stay offsets in the whole entry. With ``subchunks`` a chunk whose parts have digests of their own
    is read only as far as it is wanted.
    """
    by_file: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for index in needed:
        entry = entries[index]
        for start, stop in ((0, entry.nbytes),) if ranges is None else ranges.get(index, ()):
            if start < stop:
                by_file[entry.file].append((entry.start + start, entry.start + stop, index, entry.start))
    reads: list[ChunkRead] = []
    for file in sorted(by_file):
        cut = files[file].subchunks if subchunks else ()
        for read in _of_file(file, sorted(by_file[file]), files[file].ends):
            reads.extend(_wanted_parts(read) if cut and cut[read.chunk] else (read,))
    return reads


def _of_file(file: int, spans: Sequence[tuple[int, int, int, int]], ends: Sequence[int]) -> Iterable[ChunkRead]:
    """The chunks under ``spans``, which are sorted, so that a later one never brings an earlier chunk."""
    reads: dict[int, ChunkRead] = {}
    for start, stop, index, origin in spans:
        position, chunk = start, bisect_right(ends, start)
        while position < stop:
            begin, end = ends[chunk - 1], ends[chunk]
            read = reads.get(chunk)
            if read is None:
                read = reads[chunk] = ChunkRead(file, chunk, begin, end, [])
            until = end if end < stop else stop
            read.pieces.append(Piece(index, position - origin, position - begin, until - position))
            position, chunk = until, chunk + 1
    return reads.values()


def _wanted_parts(read: ChunkRead) -> Iterator[ChunkRead]:
    """A chunk as far as it is wanted, in runs of parts; the pieces in it are in order."""
    runs: list[tuple[int, int, list[Piece]]] = []
    for piece in read.pieces:
        first, stop = piece.start // SUBCHUNK_BYTES, -(-(piece.start + piece.length) // SUBCHUNK_BYTES)
        if runs and first <= runs[-1][1]:
            begin, end, pieces = runs.pop()
            first, stop = begin, max(end, stop)
            pieces.append(piece)
        else:
            pieces = [piece]
        runs.append((first, stop, pieces))
    for first, stop, pieces in runs:
        base = first * SUBCHUNK_BYTES
        placed = [msgspec.structs.replace(piece, start=piece.start - base) for piece in pieces] if base else pieces
        end = min(read.stop, read.start + stop * SUBCHUNK_BYTES)
        yield ChunkRead(read.file, read.chunk, read.start + base, end, placed)
