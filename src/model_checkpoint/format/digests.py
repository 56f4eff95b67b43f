"""Digests: how bytes are fingerprinted, once, while they are hot in the cache.

Per chunk a SHA-256 (audit) and an xxh3-128 (every load); per tensor one xxh3-128 of its content (reuse, diff);
per file one SHA-256 over its chunks' SHA-256 digests.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import xxhash

from model_checkpoint.format.sha256 import copy_each, sha256_each
from model_checkpoint.manifest import FileRecord, Frame

SHA_BYTES = 32
XXH_BYTES = 16


class ChunkDigest(NamedTuple):
    """Both fingerprints of one chunk."""

    sha256: bytes
    xxh3: bytes


def digest_chunks(chunks: Sequence[memoryview], rooms: Sequence[memoryview] | None = None) -> list[ChunkDigest]:
    """Fingerprint chunks and, if there are ``rooms``, copy each chunk into its own on the way.

    Example:
        >>> [digest.sha256.hex()[:8] for digest in digest_chunks([memoryview(b"abc"), memoryview(b"")])]
        ['ba7816bf', 'e3b0c442']
    """
    digests = sha256_each(chunks) if rooms is None else copy_each(chunks, rooms)
    return [ChunkDigest(sha, xxhash.xxh3_128_digest(chunk)) for sha, chunk in zip(digests, chunks, strict=True)]


def content_digest(data: memoryview | bytes) -> str:
    """Fingerprint a tensor that fits one chunk, or the joined xxh3 digests of one that does not."""
    return xxhash.xxh3_128_hexdigest(data)


def file_record(
    name: str,
    *,
    size: int,
    ends: Sequence[int],
    digests: Sequence[ChunkDigest],
    frames: Sequence[Frame] = (),
    subchunks: Sequence[str] = (),
) -> FileRecord:
    """Put the fingerprints of a whole file into its record."""
    sha256 = b"".join(d.sha256 for d in digests)
    return FileRecord(
        name=name,
        size=size,
        ends=tuple(ends),
        sha256=base64.b64encode(sha256).decode(),
        xxh3=base64.b64encode(b"".join(d.xxh3 for d in digests)).decode(),
        digest=_digest_over(sha256),
        frames=tuple(frames),
        subchunks=tuple(subchunks) if any(subchunks) else (),
    )


def are_whole(record: FileRecord) -> bool:
    """Whether a file has as many digests as chunks, and one over them all that is theirs."""
    try:
        sha256, xxh3 = _joined(record.sha256), _joined(record.xxh3)
    except ValueError:
        return False
    each = len(sha256) == SHA_BYTES * len(record.ends) and len(xxh3) == XXH_BYTES * len(record.ends)
    return each and record.digest == _digest_over(sha256)


def _digest_over(sha256: bytes) -> str:
    """The digest of a whole file: SHA-256 over those of its chunks, so that one text stands for all its bytes."""
    return hashlib.sha256(sha256).hexdigest()


def sha256_of(record: FileRecord) -> list[bytes]:
    """The SHA-256 digests of a file's chunks, in order."""
    return _split(record.sha256, SHA_BYTES)


def xxh3_of(record: FileRecord) -> list[bytes]:
    """The xxh3-128 digests of a file's chunks, in order."""
    return _split(record.xxh3, XXH_BYTES)


def _split(text: str, width: int) -> list[bytes]:
    joined = _joined(text)
    return [joined[i : i + width] for i in range(0, len(joined), width)]


def _joined(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
