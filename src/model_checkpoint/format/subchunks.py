"""Subchunks: parts of a chunk with digests of their own, so that who wants little of it need not read all of it.

Ranks write them for small pieces: loaded by another number of ranks, such a piece is wanted in parts that are much
smaller than a chunk. Whoever reads all of a chunk needs only the chunk's own digest.
"""

from __future__ import annotations

import base64
from itertools import pairwise

import xxhash

from model_checkpoint.manifest import SUBCHUNK_BYTES, FileRecord

XXH_BYTES = 16
SMALL_PIECE = 16 << 20  # what is larger is wanted in parts of several chunks


def subchunk_digests(chunk: memoryview) -> str:
    """The digests of the parts of a chunk, as its file's record has them; empty for a chunk that has only one.

    Example:
        >>> subchunk_digests(memoryview(bytes(SUBCHUNK_BYTES)))
        ''
        >>> len(base64.b64decode(subchunk_digests(memoryview(bytes(SUBCHUNK_BYTES + 1)))))
        32
    """
    if len(chunk) <= SUBCHUNK_BYTES:
        return ""
    return base64.b64encode(b"".join(_digests(chunk))).decode()


def is_intact(record: FileRecord, chunk: int, offset: int, data: memoryview) -> bool:
    """Whether ``data`` is what lies at ``offset`` of a chunk; both begin and end with parts of it."""
    first, known = offset // SUBCHUNK_BYTES, base64.b64decode(record.subchunks[chunk])
    found = b"".join(_digests(data))
    return offset % SUBCHUNK_BYTES == 0 and known[first * XXH_BYTES :].startswith(found)


def subchunks_fit(record: FileRecord) -> bool:
    """Whether every chunk of a file has no digests of parts, or as many as it has parts."""
    if not record.subchunks:
        return True
    if record.frames or len(record.subchunks) != len(record.ends):
        return False
    chunks = zip(pairwise((0, *record.ends)), record.subchunks, strict=True)
    return all(not text or _count(text) == -(-(stop - start) // SUBCHUNK_BYTES) for (start, stop), text in chunks)


def _digests(data: memoryview) -> list[bytes]:
    return [xxhash.xxh3_128_digest(data[at : at + SUBCHUNK_BYTES]) for at in range(0, len(data), SUBCHUNK_BYTES)]


def _count(text: str) -> float:
    try:
        return len(base64.b64decode(text, validate=True)) / XXH_BYTES
    except ValueError:
        return -1
