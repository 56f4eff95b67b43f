"""Exchanged chunks: what all ranks want is read from the medium by one of them, and handed to the others.

Only where the coordinator can (it has ``exchange``): it pays where the medium is slower than what lies between ranks.
Whoever is handed a chunk verifies it as if the medium had given it. Where an exchange fails, each rank reads alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from model_checkpoint.coordination import Exchange
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader, PlaceChunk, TakeChunk
from model_checkpoint.engine.reading.chunks.common_chunks import Agree, ChunkKey, chunk_key, wanted_by_all, without
from model_checkpoint.manifest import Manifest
from model_checkpoint.options import MIB
from model_checkpoint.plan import ChunkRead

log = logging.getLogger("model_checkpoint.load")

_ROUND_BYTES = 32 * MIB  # of memory that holds what is handed around at a time, however many ranks there are


class ExchangedChunks:
    """Gives chunks like the medium it stands before; see :meth:`ChunkReader.read_chunks`.

    ``agree`` returns which of the wanted chunks every rank wants.
    """

    def __init__(
        self,
        medium: ChunkReader,
        manifest: Manifest,
        *,
        rank: int,
        world_size: int,
        exchange: Exchange,
        agree: Agree,
    ) -> None:
        self._medium, self._manifest = medium, manifest
        self._rank, self._world = rank, world_size
        self._exchange, self._agree = exchange, agree

    def read_chunks(self, reads: Sequence[ChunkRead], place: PlaceChunk, take: TakeChunk) -> None:
        """Read and verify, what all ranks want together with them; all ranks make this call."""
        common = wanted_by_all(reads, self._manifest, self._agree)
        failed = self._hand_around(common, place, take)
        self._medium.read_chunks([*failed, *without(reads, common)], place, take)

    def share(self, reads: Sequence[ChunkRead]) -> None:
        """Nothing is read by more than one of the ranks."""

    def _key(self, read: ChunkRead) -> ChunkKey:
        return chunk_key(self._manifest, read)

    def _hand_around(self, reads: Sequence[ChunkRead], place: PlaceChunk, take: TakeChunk) -> list[ChunkRead]:
        """Read one's own and get those of the others, round by round; return what must be read after all."""
        failed: list[ChunkRead] = []
        works = True
        first = 0
        for some in _rounds(reads):
            if not works:
                failed += some
                continue
            turn = _Round(some, first, self._world)
            first += len(some)
            read_well = self._read_own(turn.of(self._rank))
            try:
                self._exchange(turn.buffers)
            except Exception as error:  # noqa: BLE001  # whatever a coordinator of anybody's raises
                log.warning(
                    "%s: ranks could not hand chunks around (%s), so each reads them", self._medium.where, error
                )
                works = False
            for owner, read, data in turn.slots:
                good = read_well(read) if owner == self._rank else works and self._medium.is_healthy(read, data)
                if not good:
                    failed.append(read)
                    continue
                room = place(read)
                if room is not None:
                    room[:] = data
                take(read, data if room is None else room)
        return failed

    def _read_own(self, slots: Sequence[tuple[ChunkRead, memoryview]]) -> Callable[[ChunkRead], bool]:
        """Read what this rank gives to the others; return which of it can be given."""
        rooms = {self._key(read): data for read, data in slots}
        good: set[ChunkKey] = set()
        self._medium.read_chunks(
            [read for read, _ in slots],
            lambda read: rooms[self._key(read)],
            lambda read, _: good.add(self._key(read)),
            blame=lambda read, error: log.warning("%s: %s", self._medium.where, error),  # read again, and raised, below
        )
        return lambda read: self._key(read) in good


class _Round:
    """Chunks that are handed around at once, and the memory for them: what one rank gives lies in one row."""

    def __init__(self, reads: Sequence[ChunkRead], first: int, world: int) -> None:
        owned = sorted(((first + i) % world, i) for i in range(len(reads)))
        room = memoryview(bytearray(sum(read.stop - read.start for read in reads)))
        self.slots: list[tuple[int, ChunkRead, memoryview]] = []
        self.buffers: list[memoryview] = []
        start = stop = 0
        for rank in range(world):
            for owner, i in owned:
                if owner == rank:
                    size = reads[i].stop - reads[i].start
                    self.slots.append((rank, reads[i], room[stop : stop + size]))
                    stop += size
            self.buffers.append(room[start:stop])
            start = stop

    def of(self, rank: int) -> list[tuple[ChunkRead, memoryview]]:
        """What a rank gives."""
        return [(read, data) for owner, read, data in self.slots if owner == rank]


def _rounds(reads: Sequence[ChunkRead]) -> Iterator[list[ChunkRead]]:
    """Cut chunks, in an order that is the same on all ranks, into rounds that fit the memory."""
    some: list[ChunkRead] = []
    room = _ROUND_BYTES
    for read in reads:
        size = read.stop - read.start
        if some and size > room:
            yield some
            some, room = [], _ROUND_BYTES
        some.append(read)
        room -= size
    if some:
        yield some
