"""Deliver: carry verified bytes from the medium to where the tree wants them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.ranks.conversation import Changing, unguarded
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader, PlaceChunk, TakeChunk
from model_checkpoint.engine.reading.gather_boxes import Boxes, BoxGather, ChunkMedium, begun_at
from model_checkpoint.errors import ExceptionType, PartlyLoaded
from model_checkpoint.events import Emit
from model_checkpoint.manifest import Manifest
from model_checkpoint.name_lists import some_of
from model_checkpoint.performance.copying import address_of, move_bytes, stream_copy
from model_checkpoint.performance.gc_pause import collector_paused
from model_checkpoint.plan import ChunkRead, Piece, plan_reads
from model_checkpoint.state import Target
from model_checkpoint.tree import Restore

_SMALL = 1 << 16  # below this a plain slice copy beats a call that lets go of the GIL


class SharedMedium(ChunkMedium, Protocol):
    """What gives chunks to one of several ranks."""

    def share(self, reads: Sequence[ChunkRead]) -> None:
        """Say that others on this machine want what ``reads`` bring, so that it is not read from the medium again."""
        ...


def deliver(
    medium: ChunkReader,
    manifest: Manifest,
    restore: Restore,
    needed: Sequence[int],
    *,
    mapped: bool,
    check: bool,
    emit: Emit,
    boxes: Boxes,
    begin: float | None = None,
    whole_pieces: bool = False,
    source: SharedMedium | None = None,
    changing: Changing = unguarded,
) -> int:
    """Bring the bytes of ``needed`` entries to their targets; return how many.

    Chunks that are copied come from ``source``, which may have them from elsewhere than the medium. Where other ranks
    load beside this one, it reads what they want, too, from the share ``begin`` of it on, and shares it with
    them. With ``whole_pieces`` stored pieces are read as a whole. Every chunk is copied within ``changing``.
    """
    left, source = list(needed), medium if source is None else source
    meter = Meter("load", 0, emit)
    if mapped:
        left = _adopt(medium, manifest, restore, left, meter, check=check)
    with collector_paused():
        targets, parts = restore.targets(left), not medium.full  # allocated here, by one thread
        split, on_ranks = manifest.pieces, restore.sharded
        boxed = {index: targets[index] for index in left if index in split or index in on_ranks}
        plain = [index for index in left if index not in boxed] if boxed else left
        reads = plan_reads(plain, manifest.entries, manifest.files, subchunks=parts)
        gather = BoxGather(manifest, boxed, boxes, begin=begin or 0.0, whole=whole_pieces, subchunks=parts)
        if begin is not None:
            reads = begun_at(reads, begin)
            source.share([*reads, *gather.shared])
    meter.expect(gather.nbytes + sum(read.stop - read.start for read in reads))
    hand = _ChunkDelivery(manifest, targets, meter)

    def touched() -> tuple[list[str], list[str]]:
        whole, part = hand.touched()
        return _live_names(restore, whole), _live_names(restore, part | set(gather.touched))

    chunks = _GuardedChunks(source, lambda: changing(touched))
    try:
        chunks.read_chunks(reads, hand.place, hand.take)
        gather.run(chunks, meter, chunks.guard)
    except BaseException as error:
        replaced, partial = touched()
        if not replaced and not partial:
            raise
        stopped = PartlyLoaded(
            f"{medium.where}: the load stopped midway: {str(error).rstrip('.')}. "
            f"Already replaced: {some_of(replaced)}; "
            f"partly replaced: {some_of(partial)}; all else is untouched. Load a healthy checkpoint "
            "into the same objects, or use atomic=True, which changes all or nothing.",
            medium.where,
            replaced=replaced,
            partial=partial,
            inner_exception=error,
        )
        if isinstance(error, TimeoutError):
            stopped.type = ExceptionType.TIMEOUT
        raise stopped from error
    return sum(manifest.entries[i].nbytes for i in needed)


def _live_names(restore: Restore, entries: set[int]) -> list[str]:
    return sorted(name for index in entries for name in restore.live_names(index))


class _GuardedChunks(msgspec.Struct, frozen=True):
    """Chunks that are handed out within a guard."""

    inner: ChunkMedium
    guard: Callable[[], AbstractContextManager[None]]

    def read_chunks(self, reads: Sequence[ChunkRead], place: PlaceChunk, take: TakeChunk) -> None:
        """Read and verify; the guard is entered for each chunk, when it has matched."""

        def taken(read: ChunkRead, data: memoryview) -> None:
            with self.guard():
                take(read, data)

        self.inner.read_chunks(reads, place, taken)


class _ChunkDelivery:
    """Puts chunks where they belong and remembers which: live leaves are touched from then on."""

    def __init__(self, manifest: Manifest, targets: Mapping[int, Target], meter: Meter) -> None:
        self._manifest, self._targets, self._meter = manifest, targets, meter
        self._begun: list[ChunkRead] = []  # two lists, since to append needs no lock; looked at only if somebody asks
        self._done: list[ChunkRead] = []

    def place(self, read: ChunkRead) -> memoryview | None:
        """Offer fresh memory for a chunk that is part of one array; live memory never gets unverified bytes."""
        piece = read.pieces[0]
        if len(read.pieces) > 1 or piece.length != read.stop - read.start:
            return None
        target = self._targets[piece.entry]
        if target.live or target.buffer is None:
            return None
        return target.buffer[piece.into : piece.into + piece.length]

    def take(self, read: ChunkRead, data: memoryview) -> None:
        """Distribute one verified chunk."""
        self._begun.append(read)
        if self.place(read) is None:  # else it was read there
            begin = address_of(data) if len(read.pieces) > 1 else 0
            for piece in read.pieces:
                target = self._targets[piece.entry]
                if begin and target.address and piece.length < _SMALL:
                    move_bytes(target.address + piece.into, begin + piece.start, piece.length)
                else:
                    _copy(target, piece, data)
        self._done.append(read)
        self._meter.add(read.stop - read.start)

    def touched(self) -> tuple[set[int], set[int]]:
        """Live entries replaced whole, and in part."""
        written: Counter[int] = Counter()
        for piece in self._live(self._done):
            written[piece.entry] += piece.length
        whole = {index for index, count in written.items() if count == self._manifest.entries[index].nbytes}
        return whole, {piece.entry for piece in self._live(self._begun)} - whole

    def _live(self, reads: Sequence[ChunkRead]) -> Iterator[Piece]:
        return (piece for read in reads for piece in read.pieces if self._targets[piece.entry].live)


def _copy(target: Target, piece: Piece, data: memoryview) -> None:
    source, buffer = data[piece.start : piece.start + piece.length], target.buffer
    if buffer is None:
        target.put(piece.into, source)
    elif piece.length < _SMALL:
        buffer[piece.into : piece.into + piece.length] = source
    else:
        stream_copy(buffer[piece.into : piece.into + piece.length], source)


def _adopt(
    medium: ChunkReader, manifest: Manifest, restore: Restore, needed: Sequence[int], meter: Meter, *, check: bool
) -> list[int]:
    """Give entries their place in a map of the file; return those that must be copied after all."""
    split = manifest.pieces
    left = [index for index in needed if index in split]
    by_file: dict[int, list[int]] = {}
    for index in set(needed).difference(left):
        by_file.setdefault(manifest.entries[index].file, []).append(index)
    for file, indices in by_file.items():
        view = medium.map_file(file)
        if view is None:
            left.extend(indices)
            continue
        if check:  # not through the map: a file that is cut meanwhile would end the process
            reads = plan_reads(indices, manifest.entries, manifest.files)
            meter.expect(sum(read.stop - read.start for read in reads))
            medium.read_chunks(reads, lambda _: None, lambda read, _: meter.add(read.stop - read.start))
        for index in indices:
            entry = manifest.entries[index]
            if not restore.adopt(index, view[entry.start : entry.stop]):
                left.append(index)
    return left
