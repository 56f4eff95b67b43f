"""Slabs: move the bytes of many leaves into files, hashing each chunk on the way.

Workers take runs of whole chunks, copy them into an aligned slab while they fingerprint them, and write the slab; both
release the GIL. Memory is one slab per worker, whatever the state's size.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import xxhash

from model_checkpoint.engine.common.aligned_memory import PAGE
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.pages import Bytes
from model_checkpoint.engine.common.slab_pool import SlabPool
from model_checkpoint.engine.common.workers import Pace, cores, run_all
from model_checkpoint.engine.writing.shared_pages import SharedPages
from model_checkpoint.events import Emit
from model_checkpoint.format import (
    SMALL_PIECE,
    ChunkDigest,
    FileLayout,
    content_digest,
    digest_chunks,
    subchunk_digests,
)
from model_checkpoint.manifest import Frame
from model_checkpoint.options import MIB
from model_checkpoint.state import Source
from model_checkpoint.storage.contract.store import Writer

SLAB_BYTES = 24 * MIB
SLABS_BYTES = 192 * MIB  # of all workers together
_PER_CORE = 3  # one that hashes, two that wait for the medium
_TINY = MIB  # to start threads for so little takes longer than the work
_SMALL = 1 << 16  # below this a plain slice copy beats a call that lets go of the GIL

SLAB_POOL = SlabPool(most=SLABS_BYTES)

Copy = Callable[[memoryview, memoryview], None]


class ChunkCompressor(Protocol):
    """What compresses one file (see :mod:`model_checkpoint.engine.writing.compress`)."""

    @property
    def size(self) -> int:
        """Bytes of the finished file."""
        ...

    @property
    def frames(self) -> Sequence[Frame]:
        """Where the chunks lie in the finished file."""
        ...

    def put(self, run: ChunkRun, slab: Bytes) -> None:
        """Copy, compress and write one run; the last run of a file seals it."""
        ...

    def finish(self, run: ChunkRun, slab: Bytes) -> None:
        """Compress and write one run that is in ``slab`` already."""
        ...

    def give_up(self) -> None:
        """Wake whoever waits for a run that will not come."""
        ...


@dataclass(slots=True, eq=False)
class FileJob:
    """One data file on its way to the medium."""

    layout: FileLayout
    sources: Sequence[Source]  # in file order; let go of once their bytes are staged
    writer: Writer = field(init=False)  # set when the stage is open, before the first run is put
    digests: list[ChunkDigest] = field(default_factory=list)
    contents: dict[int, str] = field(default_factory=dict)  # digests of tensors that fit a chunk, by file order
    edges: SharedPages = field(init=False)
    open_runs: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    compressor: ChunkCompressor | None = None  # compresses the file, if it is to be compressed
    subchunks: list[str] = field(default_factory=list)  # digests of parts of chunks, if those are wanted

    def __post_init__(self) -> None:
        self.edges = SharedPages(self.layout.size)

    @property
    def size(self) -> int:
        """Bytes of the file as stored, once it is written."""
        return self.layout.size if self.compressor is None else self.compressor.size

    def close_run(self) -> bool:
        """Count a run as done; True for the last of the file."""
        with self.lock:
            self.open_runs -= 1
            return self.open_runs == 0

    def content(self, tensor: int, chunk_bytes: int) -> str:
        """The content digest of the ``tensor``-th tensor of the file, once all is written."""
        start, stop = self.layout.starts[tensor], self.layout.starts[tensor + 1]
        if stop - start < chunk_bytes:
            return self.contents.get(tensor) or content_digest(b"")
        first, last = bisect_right(self.layout.ends, start), bisect_right(self.layout.ends, stop - 1)
        return content_digest(b"".join(d.xxh3 for d in self.digests[first : last + 1]))

    def want_subchunks(self) -> None:
        """Have parts of chunks fingerprinted, too, where pieces are small; compressed ones are read as a whole."""
        if self.compressor is None:
            self.subchunks = [""] * len(self.layout.ends)


class ChunkSlot(NamedTuple):
    """Where the bytes of one chunk are on their way."""

    chunk: int
    start: int  # in the file
    data: Bytes


class ChunkRun(NamedTuple):
    """A few whole chunks ``[first, stop)`` of one file, about a slab of them."""

    job: FileJob
    first: int
    stop: int

    @property
    def begin(self) -> int:
        """First byte in the file."""
        return begin_of(self.job.layout.ends, self.first)

    @property
    def end(self) -> int:
        """Byte after the last in the file."""
        return self.job.layout.ends[self.stop - 1]

    @property
    def base(self) -> int:
        """The byte of the file that the slab's first byte stands for: the page the run begins in."""
        return self.begin // PAGE * PAGE

    def rooms(self, slab: Bytes) -> Iterator[ChunkSlot]:
        """Yield each chunk's room in the slab."""
        for chunk in range(self.first, self.stop):
            start = begin_of(self.job.layout.ends, chunk)
            yield ChunkSlot(chunk, start, slab[start - self.base : self.job.layout.ends[chunk] - self.base])


def write_files(jobs: Sequence[FileJob], *, emit: Emit) -> None:
    """Write every file of ``jobs`` and seal each as soon as its last run is on the medium."""
    total = sum(job.layout.size for job in jobs)
    alone = total <= _TINY
    runs = plan_runs(jobs, SLAB_BYTES, hands=None if alone else _PER_CORE * cores())
    meter = Meter("save", total, emit)
    room = slab_bytes(runs)
    pace = Pace(most=1 if alone else max(1, SLABS_BYTES // room), per_core=_PER_CORE)

    turns = threading.Semaphore(cores())  # sharing a core, all would be ready at once, and the medium idle until then

    def worker(items: Iterator[ChunkRun]) -> None:
        try:
            with SLAB_POOL.lent(room) as slab:
                for run in items:
                    _write_run(run, slab, pace, turns)
                    meter.add(run.end - run.begin)
        except BaseException:
            for compressor in [job.compressor for job in jobs if job.compressor is not None]:
                compressor.give_up()  # others may wait for the run that failed
            raise

    run_all(worker, runs, pace=pace)


def _write_run(run: ChunkRun, slab: Bytes, pace: Pace, turns: threading.Semaphore) -> None:
    if run.job.compressor is not None:
        run.job.compressor.put(run, slab)
        return
    with turns:
        copy_chunk(run.job, list(run.rooms(slab)))
    with pace.waiting():
        put_run(run, slab)


def finish_run(run: ChunkRun, slab: Bytes) -> None:
    """Fingerprint and write a run that was filled before."""
    if run.job.compressor is not None:
        run.job.compressor.finish(run, slab)
        return
    digest_run(run.job, list(run.rooms(slab)))
    put_run(run, slab)


def plan_runs(jobs: Sequence[FileJob], slab: int, *, hands: int | None = None) -> list[ChunkRun]:
    """Group chunks into runs of at most a slab (or one chunk, if longer), in file order; compressed ones one by one.

    With ``hands``, so many workers fill and write their runs at once, and those at both ends are shorter.
    """
    runs: list[ChunkRun] = []
    before, after = 0, sum(job.layout.size for job in jobs)
    for job in jobs:
        ends, first = job.layout.ends, 0
        job.digests = [ChunkDigest(b"", b"")] * len(ends)
        for i in range(len(ends)):
            begin = begin_of(ends, first)
            most = slab if hands is None else _most(slab, hands, len(runs), before + begin, after - begin)
            if job.compressor is not None or i == len(ends) - 1 or ends[i + 1] - begin > most:
                runs.append(ChunkRun(job, first, i + 1))
                job.open_runs += 1
                first = i + 1
        before, after = before + job.layout.size, after - job.layout.size
    return runs


def _most(slab: int, hands: int, runs: int, before: int, after: int) -> int:
    """Bytes of the next run: the sooner the first is filled, the sooner the medium has work; the last keep all busy.

    Half a slab still has the chunks that are hashed side by side; a single one takes more time for each byte.
    """
    if runs <= cores():
        return 0
    return slab if before >= hands * slab // 2 and after >= hands * slab else slab // 2


def slab_bytes(runs: Sequence[ChunkRun]) -> int:
    """How large a slab must be to take any of ``runs``."""
    longest = max((run.end - run.begin for run in runs), default=0)
    return (longest // PAGE + 2) * PAGE


def begin_of(ends: Sequence[int], chunk: int) -> int:
    """Where a chunk starts."""
    return ends[chunk - 1] if chunk else 0


def copy_chunk(job: FileJob, rooms: Sequence[ChunkSlot]) -> None:
    """Copy chunks into their rooms and fingerprint them, from their sources, so that a bad copy shows."""
    whole = [(room, source) for room in rooms if (source := _whole_source(job, room)) is not None]
    digests = digest_chunks([source for _, source in whole], [room.data.data for room, _ in whole])
    for (room, source), digest in zip(whole, digests, strict=True):
        job.digests[room.chunk] = digest
        _fingerprint_small(job, room, source)
    copied = {room.chunk for room, _ in whole}
    gathered = [room for room in rooms if room.chunk not in copied]
    for room in gathered:
        fill(job, room.start, room.data)
    digest_run(job, gathered)


def _whole_source(job: FileJob, room: ChunkSlot) -> memoryview | None:
    """The bytes of a chunk where they lie, if one tensor holds them all."""
    starts, stop = job.layout.starts, room.start + len(room.data)
    if stop <= starts[0]:
        return None
    tensor = bisect_right(starts, room.start) - 1
    if starts[tensor + 1] < stop:
        return None
    return job.sources[tensor].window(room.start - starts[tensor], stop - starts[tensor])


def plain_copy(room: memoryview, data: memoryview) -> None:
    """Copy through the processor's caches, where the bytes are wanted next."""
    np.copyto(np.frombuffer(room, dtype=np.uint8), np.frombuffer(data, dtype=np.uint8))


def fill(job: FileJob, start: int, data: Bytes, *, copy: Copy = plain_copy) -> None:
    """Copy the bytes of the file from ``start`` on into ``data``; ``copy`` moves what is more than a few.

    It may be a part of a chunk, so that a source which must copy to show its bytes copies little at a time.
    """
    starts, stop = job.layout.starts, start + len(data)
    if stop <= starts[0]:
        data[:] = np.frombuffer(job.layout.header, dtype=np.uint8)[start:stop]
        return
    view = data.data
    for i in _tensors(job, bisect_right(starts, start) - 1, stop):
        lower, upper = max(starts[i], start), min(starts[i + 1], stop)
        window = job.sources[i].window(lower - starts[i], upper - starts[i])
        if len(window) < _SMALL:
            view[lower - start : upper - start] = window
        else:
            copy(view[lower - start : upper - start], window)


def _tensors(job: FileJob, first: int, stop: int) -> Iterator[int]:
    """Tensors with bytes before ``stop``, from ``first`` on."""
    starts = job.layout.starts
    while first < len(starts) - 1 and starts[first] < stop:
        if starts[first] < starts[first + 1]:
            yield first
        first += 1


def digest_run(job: FileJob, rooms: Sequence[ChunkSlot]) -> None:
    """Fingerprint chunks that are in their rooms, and the small tensors in them."""
    for room, digest in zip(rooms, digest_chunks([room.data.data for room in rooms]), strict=True):
        job.digests[room.chunk] = digest
        _fingerprint_small(job, room, room.data.data)


def _fingerprint_small(job: FileJob, room: ChunkSlot, source: memoryview) -> None:
    """Fingerprint the tensors that lie whole within a chunk, and parts of it where those are wanted."""
    starts, view = job.layout.starts, room.data.data
    if room.chunk == 0:
        return
    tensor, stop = bisect_right(starts, room.start) - 1, room.start + len(room.data)
    if job.subchunks and starts[tensor + 1] - starts[tensor] < SMALL_PIECE:
        job.subchunks[room.chunk] = subchunk_digests(source)
    if starts[tensor] < room.start or starts[tensor + 1] > stop:
        return  # a piece of a tensor that fills several chunks
    if starts[tensor] == room.start and starts[tensor + 1] == stop:
        job.contents[tensor] = job.digests[room.chunk].xxh3.hex()
        return
    for i in _tensors(job, tensor, stop):
        job.contents[i] = xxhash.xxh3_128_hexdigest(view[starts[i] - room.start : starts[i + 1] - room.start])


def put_run(run: ChunkRun, slab: Bytes) -> None:
    """Write a filled and fingerprinted run, with the shared pages it completes; the last run of a file seals it."""
    job, base = run.job, run.base
    lower, upper = -(-run.begin // PAGE) * PAGE, run.end // PAGE * PAGE
    for begin, end in _edge_parts(run.begin, run.end, lower, upper):
        page = begin // PAGE * PAGE
        if job.edges.complete(page, slab[page - base : page - base + PAGE], slice(begin - page, end - page)):
            lower, upper = min(lower, page), max(upper, page + PAGE)
    if lower < upper:
        alignment = job.writer.alignment
        upper = min(upper, -(-job.layout.size // alignment) * alignment)
        job.writer.write(lower, slab[lower - base : upper - base].data)
    if job.close_run():
        job.writer.seal()


def _edge_parts(begin: int, end: int, inner: int, outer: int) -> list[tuple[int, int]]:
    """The parts of ``[begin, end)`` outside the aligned middle ``[inner, outer)``."""
    if inner > outer:  # the run lies within one page
        return [(begin, end)]
    return [(a, b) for a, b in ((begin, inner), (outer, end)) if a < b]
