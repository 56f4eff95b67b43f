"""Stored chunks: a data file as its bytes lie on the medium, chunk by chunk, and whether those bytes are right."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import xxhash

from model_checkpoint.format import RAW, FrameBroken, decompress, sha256_each, sha256_of, stored_xxh3, xxh3_of
from model_checkpoint.manifest import FileRecord, Frame


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """The bytes ``[start, stop)`` of a file as it is stored, and the digests they must have."""

    start: int
    stop: int
    xxh3: bytes  # of these bytes
    sha256: bytes  # of the chunk, unpacked if it is packed
    frame: Frame | None  # how it is packed, or None
    size: int  # unpacked

    @property
    def key(self) -> tuple[bytes, bytes]:
        """Equal for chunks whose stored bytes are equal."""
        return self.sha256, self.xxh3

    def is_intact(self, data: memoryview) -> bool:
        """Whether ``data`` is what was stored, by SHA-256."""
        if len(data) != self.stop - self.start or xxhash.xxh3_128_digest(data) != self.xxh3:
            return False
        if self.frame is None:
            return sha256_each([data]) == [self.sha256]
        import numpy as np

        room = np.empty(self.size, np.uint8)
        try:
            decompress(data, room, self.frame.width)
        except FrameBroken:
            return False
        return hashlib.sha256(room.data).digest() == self.sha256


def stored_chunks(record: FileRecord) -> Sequence[StoredChunk]:
    """The chunks of a file, in order; together they are all of its bytes."""
    return list(_chunks(record))


def _chunks(record: FileRecord) -> Iterator[StoredChunk]:
    start = stored = 0
    for i, (end, sha256, xxh3) in enumerate(zip(record.ends, sha256_of(record), xxh3_of(record), strict=True)):
        frame = record.frames[i] if record.frames and record.frames[i].codec != RAW else None
        length = end - start if frame is None else frame.stop - frame.start
        digest = xxh3 if frame is None else stored_xxh3(frame)
        yield StoredChunk(stored, stored + length, digest, sha256, frame, end - start)
        start, stored = end, stored + length
