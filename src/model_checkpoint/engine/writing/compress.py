"""Compress: write data files whose chunks are compressed, in parallel and yet always the same bytes.

Workers compress chunks at the same time; where a chunk lies depends on how small those before it became, so each waits
for its turn, takes the bytes of the page its predecessor could not fill, and leaves those it cannot fill itself. Every
page is written once. The header comes last, into the room kept for it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np
import xxhash

from model_checkpoint.engine.common.aligned_memory import PAGE
from model_checkpoint.engine.common.pages import Bytes, new_slab
from model_checkpoint.engine.writing.slabs import ChunkRun, ChunkSlot, FileJob, begin_of, copy_chunk, digest_run
from model_checkpoint.format import (
    MOST_WIDTH,
    Compressor,
    FileLayout,
    digest_chunks,
    frame_header,
    planes_frame,
    raw_frame,
)
from model_checkpoint.manifest import Frame
from model_checkpoint.options import MIB, CompressionLevel

_CODER_BYTES = 2 * MIB


def longest_chunk(jobs: Sequence[FileJob]) -> int:
    """The longest chunk of any of the files, in bytes."""
    ends = [job.layout.ends for job in jobs]
    return max((e[i] - begin_of(e, i) for e in ends for i in range(len(e))), default=0)


def scratch_bytes(jobs: Sequence[FileJob]) -> int:
    """Memory a thread takes beside the slab it compresses: planes, what became of them, and the coder's own."""
    return 2 * longest_chunk(jobs) + _CODER_BYTES if any(job.compressor is not None for job in jobs) else 0


class WorkerTools(threading.local):
    """What each worker needs to compress: a compressor, and room for one chunk."""

    def __init__(self, level: CompressionLevel) -> None:
        self.compressor = Compressor(level)
        self._room = np.empty(0, dtype=np.uint8)

    def room(self, size: int) -> Bytes:
        """Memory for ``size`` bytes, reused: fresh pages cost more than the copy."""
        if len(self._room) < size:
            self._room = new_slab(size)
        return self._room[:size]


class FileCompressor:
    """Compresses the chunks of one file; see :class:`model_checkpoint.engine.writing.slabs.ChunkCompressor`."""

    def __init__(self, layout: FileLayout, tools: WorkerTools, metadata: Mapping[str, str]) -> None:
        self._tools, self._metadata = tools, metadata
        self._header_size = layout.ends[0]
        self._frames = [raw_frame(0, self._header_size)]
        self._tail = b""  # bytes of the page that is not full yet
        self._turns = threading.Condition()
        self._given_up = False

    @property
    def frames(self) -> Sequence[Frame]:
        """Where the chunks lie; complete when the file is sealed."""
        return self._frames

    @property
    def size(self) -> int:
        """Bytes of the file so far."""
        return self._frames[-1].stop

    def put(self, run: ChunkRun, slab: Bytes) -> None:
        """Copy, compress and write one run (of one chunk, since plans for compressed files are made so)."""
        raw = self._tools.room(run.end - run.begin)
        if run.first:
            copy_chunk(run.job, [ChunkSlot(run.first, run.begin, raw)])
        self._put(run, raw, slab)

    def finish(self, run: ChunkRun, slab: Bytes) -> None:
        """Compress and write one run that is in ``slab`` already."""
        room = next(run.rooms(slab))
        if run.first:
            digest_run(run.job, [room])
        self._put(run, room.data, slab)  # in place: a frame is made elsewhere, and a chunk that stays raw only moves

    def _put(self, run: ChunkRun, raw: Bytes, slab: Bytes) -> None:
        placed = run.first == 0 or self._put_chunk(run, raw, slab)
        if placed and run.job.close_run():
            self._seal(run.job, slab)

    def _put_chunk(self, run: ChunkRun, raw: Bytes, slab: Bytes) -> bool:
        """Compress one chunk, wait for its turn, and write it; False if its turn will never come."""
        job, chunk = run.job, run.first
        width = _width(job.layout, run.begin)
        parts = self._tools.compressor.compress(raw, width)
        packed = sum(map(len, parts)) < len(raw)
        digest = _xxh3(parts) if packed else b""
        with self._turns:
            self._turns.wait_for(lambda: self._given_up or len(self._frames) == chunk)
            if self._given_up:
                return False  # without an error: the one that matters is another worker's
            start = self.size
            base, stop = start - len(self._tail), start + sum(map(len, parts))
            _join(slab, self._tail, parts)
            full = (stop - base) // PAGE * PAGE
            self._tail = slab[full : stop - base].tobytes()
            self._frames.append(
                planes_frame(start, stop, width=width, xxh3=digest) if packed else raw_frame(start, stop)
            )
            self._turns.notify_all()
        if full:
            job.writer.write(base, slab[:full].data)
        return True

    def give_up(self) -> None:
        """Wake whoever waits for its turn."""
        with self._turns:
            self._given_up = True
            self._turns.notify_all()

    def _seal(self, job: FileJob, slab: Bytes) -> None:
        """Write the last page and the header, then flush the file."""
        if self._tail:
            unit = job.writer.alignment
            page = slab[: unit * -(-len(self._tail) // unit)]
            page[:] = 0
            _join(page, self._tail, [])
            job.writer.write(self.size - len(self._tail), page.data)
        header = frame_header(self._frames, metadata=self._metadata, room=self._header_size)
        (job.digests[0],) = digest_chunks([memoryview(header)])
        _join(slab, header, [])
        job.writer.write(0, slab[: len(header)].data)
        job.writer.seal(self.size)


def _width(layout: FileLayout, start: int) -> int:
    """The size of the numbers at ``start``; tensors are ordered by it, so what follows has that size or a divisor."""
    return min(MOST_WIDTH, max(1, layout.alignments[bisect_right(layout.starts, start) - 1]))


def _join(room: Bytes, head: bytes, parts: Sequence[memoryview]) -> None:
    """Copy ``head`` and then ``parts`` to the start of ``room``; a single part may lie in ``room`` itself."""
    at = len(head)
    for part in parts:
        room[at : at + len(part)] = np.frombuffer(part, dtype=np.uint8)
        at += len(part)
    room[: len(head)] = np.frombuffer(head, dtype=np.uint8)


def _xxh3(parts: Sequence[memoryview]) -> bytes:
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return digest.digest()
