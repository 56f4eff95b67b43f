"""Neighbour chunks: what all ranks of a machine want is read from the medium by one of them, and shown to the others.

Whoever is shown a chunk verifies it as if the medium had given it. It only saves time: where the others are not there
any more, or not in time, this rank reads what is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from model_checkpoint.engine.common.workers import Pace, run_all, run_beside
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader, PlaceChunk, TakeChunk
from model_checkpoint.engine.reading.chunks.common_chunks import (
    Agree,
    ChunkKey,
    Wanted,
    chunk_key,
    wanted_by_all,
    without,
)
from model_checkpoint.engine.reading.chunks.shared_slots import SLOT_BYTES, Alone, SharedSlots, WaitLimit, slots_each
from model_checkpoint.manifest import Manifest
from model_checkpoint.performance.copying import stream_copy
from model_checkpoint.plan import ChunkRead

log = logging.getLogger("model_checkpoint.load")

_LOOKERS = 2  # threads that verify and take what the others show

_Shown = tuple[int, int, ChunkRead]  # whose, under which number, and what it is here


class NeighbourChunks:
    """Gives chunks like the medium it stands before; see :meth:`ChunkReader.read_chunks`.

    ``slots`` are those of all ranks of this machine by rank, this one's among them; ``agree`` returns which of the
    wanted chunks all of them want, nothing if one of them has left.
    """

    def __init__(
        self,
        medium: ChunkReader,
        manifest: Manifest,
        *,
        rank: int,
        slots: Mapping[int, SharedSlots],
        agree: Agree,
        seconds: float,
    ) -> None:
        self._medium, self._manifest = medium, manifest
        self._rank, self._slots, self._agree = rank, slots, agree
        self._ranks, self._count = sorted(slots), slots_each(len(slots))
        self._others = {other: one for other, one in slots.items() if other != rank}
        self._numbers = dict.fromkeys(self._ranks, 0)  # how many each has shown
        self._wait = WaitLimit(seconds)
        self._cached: set[ChunkKey] = set()

    def share(self, reads: Sequence[ChunkRead]) -> None:
        """Say that others on this machine want what ``reads`` bring: what is not shown goes through the page cache."""
        self._cached |= {self._key(read) for read in reads}

    def read_chunks(self, reads: Sequence[ChunkRead], place: PlaceChunk, take: TakeChunk) -> None:
        """Read and verify, what all ranks of this machine want together with them; all of them make this call."""
        from_far = {file for file in {read.file for read in reads} if self._medium.is_far(file)}
        far = [read for read in reads if read.file in from_far]
        common = wanted_by_all(far, self._manifest, self._willing)
        taken: list[ChunkRead] = []

        def take_one(read: ChunkRead, data: memoryview) -> None:
            take(read, data)
            taken.append(read)

        with suppress(Alone):
            self._pass_on(common, place, take_one)
        left = without(reads, taken)
        if len(taken) < len(common) and self._wait.stopped:
            log.warning("%s: ranks do not show each other chunks any more, so each reads alone", self._medium.where)
        self._medium.share([read for read in left if self._key(read) in self._cached])
        self._medium.read_chunks(left, place, take)

    def _willing(self, wanted: Wanted) -> Wanted:
        return self._agree({} if self._wait.stopped or not self._others else wanted)

    def _key(self, read: ChunkRead) -> ChunkKey:
        return chunk_key(self._manifest, read)

    def _pass_on(self, common: Sequence[ChunkRead], place: PlaceChunk, take: TakeChunk) -> None:
        """Read and show one's own share while those of the others are taken."""
        mine: dict[ChunkKey, int] = {}
        theirs: list[_Shown] = []
        for i, read in enumerate(common):
            owner = self._ranks[i % len(self._ranks)]
            self._numbers[owner] += 1
            if owner == self._rank:
                mine[self._key(read)] = self._numbers[owner]
            else:
                theirs.append((owner, self._numbers[owner], read))
        own = [read for read in common if self._key(read) in mine]

        def look(items: Iterator[_Shown]) -> None:
            for owner, number, read in items:
                self._take_shown(owner, number, read, place, take)

        try:
            run_beside(
                lambda: run_all(look, theirs, pace=Pace(most=_LOOKERS)),
                lambda: self._read_own(own, mine, place, take),
                stop=self._wait.stop,
            )
        except BaseException:
            if self._others:  # not before: whoever has left is not asked before its slots are used again
                self._slots[self._rank].leave()
            raise

    def _read_own(
        self, reads: Sequence[ChunkRead], numbers: Mapping[ChunkKey, int], place: PlaceChunk, take: TakeChunk
    ) -> None:
        def show(read: ChunkRead, data: memoryview | None) -> None:
            slots = self._slots[self._rank]
            slots.show(numbers[self._key(read)], data, self._others, self._count, self._wait)

        def take_and_show(read: ChunkRead, data: memoryview) -> None:
            take(read, data)
            show(read, data if len(data) <= SLOT_BYTES else None)

        def pass_over(read: ChunkRead, error: Exception) -> None:
            log.warning("%s: %s", self._medium.where, error)  # read again, and raised, once all else is there
            show(read, None)

        self._medium.read_chunks(reads, place, take_and_show, blame=pass_over)

    def _take_shown(self, owner: int, number: int, read: ChunkRead, place: PlaceChunk, take: TakeChunk) -> None:
        slots = self._slots[owner]
        data = slots.look(number, read.stop - read.start, self._count, self._wait)
        if data is not None and self._medium.is_healthy(read, data):
            room = place(read)
            if room is not None:
                stream_copy(room, data)
            take(read, data if room is None else room)
        slots.seen(number, self._count, self._rank)
