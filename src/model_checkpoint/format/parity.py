"""Parity: what a parity file looks like. Lost files of a checkpoint follow from the others and from these.

The files of a checkpoint, as stored, stand one behind the other in a few columns of about equal length. The sum of all
columns, byte by byte, is the body of a parity file: P by exclusive or, Q in the field of :mod:`galois`. So one lost
file, with Q two, follow from the rest wherever they stand, and of damaged chunks as many as have sums at their bytes.

Behind the body stand a copy of the manifest, the record of all this as one JSON line, its SHA-256, the length of both,
and a mark. P and Q have the same record, with the digests of both, so that one is enough to use the two.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from model_checkpoint.errors import ManifestInvalid
from model_checkpoint.format.digests import SHA_BYTES
from model_checkpoint.manifest import PARITY_SUMS
from model_checkpoint.options import MIB

BLOCK_BYTES = 4 * MIB  # of a body have a digest together
MOST_COLUMNS = 16  # more would take less room, but more of the same damage would be beyond repair

_VERSION = 1
_MARK = b"MCKPTPAR"
_END = struct.Struct("<Q8s")
END_BYTES = _END.size
_DIGEST_CHARS = 64
_MOST_RECORD = 256 * MIB


class ColumnFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file of a column."""

    name: str
    size: int  # as stored


class ParityRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What parity files are sums of, and the digests of their own bytes."""

    format: str = "model_checkpoint.parity"
    version: int = _VERSION
    scheme: str  # "xor" or "pq"
    id: str  # of the checkpoint
    attempt: str
    length: int  # of a body: that of the longest column
    block: int
    columns: tuple[tuple[ColumnFile, ...], ...]
    digests: dict[str, str]  # for each sum, base64 of the SHA-256 digests of its blocks, one after the other
    manifest_size: int
    manifest_sha256: str

    def sha256_of(self, kind: str) -> list[bytes]:
        """The digests of the blocks of one sum, in order."""
        joined = base64.b64decode(self.digests[kind], validate=True)
        return [joined[i : i + SHA_BYTES] for i in range(0, len(joined), SHA_BYTES)]


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """Where one file stands: its bytes ``[0, size)`` are ``[start, start + size)`` of a column."""

    column: int
    start: int
    size: int


def stand(sizes: Mapping[str, int]) -> tuple[tuple[ColumnFile, ...], ...]:
    """Put files into columns, the largest first, each into the shortest; empty ones need no place.

    Example:
        >>> [[placed.name for placed in column] for column in stand({"a": 3, "b": 2, "c": 0})]
        [['a'], ['b']]
    """
    files = sorted(((size, name) for name, size in sizes.items() if size), key=lambda one: (-one[0], one[1]))
    columns: list[list[ColumnFile]] = [[] for _ in range(min(len(files), MOST_COLUMNS))]
    lengths = [0] * len(columns)
    for size, name in files:
        shortest = lengths.index(min(lengths))
        columns[shortest].append(ColumnFile(name, size))
        lengths[shortest] += size
    return tuple(tuple(column) for column in columns)


def places(columns: Sequence[Sequence[ColumnFile]]) -> dict[str, ColumnPlace]:
    """Where each file stands.

    Example:
        >>> places(stand({"a": 3, "b": 2}))["b"]
        ColumnPlace(column=1, start=0, size=2)
    """
    found = {}
    for number, column in enumerate(columns):
        start = 0
        for placed in column:
            found[placed.name] = ColumnPlace(number, start, placed.size)
            start += placed.size
    return found


def body_length(columns: Sequence[Sequence[ColumnFile]]) -> int:
    """Bytes of the longest column."""
    return max((sum(placed.size for placed in column) for column in columns), default=0)


def parity_record(
    *,
    scheme: str,
    id: str,
    attempt: str,
    columns: tuple[tuple[ColumnFile, ...], ...],
    digests: Mapping[str, Sequence[bytes]],
    manifest: bytes,
) -> ParityRecord:
    """Put together what stands behind the body."""
    return ParityRecord(
        scheme=scheme,
        id=id,
        attempt=attempt,
        length=body_length(columns),
        block=BLOCK_BYTES,
        columns=columns,
        digests={kind: base64.b64encode(b"".join(each)).decode() for kind, each in digests.items()},
        manifest_size=len(manifest),
        manifest_sha256=hashlib.sha256(manifest).hexdigest(),
    )


def ending(record: ParityRecord, manifest: bytes) -> bytes:
    """All that stands behind the body."""
    line = msgspec.json.encode(record)
    text = line + b"\n" + hashlib.sha256(line).hexdigest().encode()
    return manifest + text + _END.pack(len(text), _MARK)


def record_span(end: bytes, size: int, where: str) -> tuple[int, int]:
    """Which bytes of a file of ``size`` are its record, by its last :data:`END_BYTES`."""
    if len(end) == END_BYTES:
        length, mark = _END.unpack(end)
        if mark == _MARK and _DIGEST_CHARS < length <= min(_MOST_RECORD, size - END_BYTES):
            return size - END_BYTES - length, size - END_BYTES
    raise _unusable(where, "it does not end like one")


_RECORDS = msgspec.json.Decoder(ParityRecord)  # made once: msgspec crashes where two threads meet a class first


def decode_record(text: bytes, where: str) -> ParityRecord:
    """Read a record as if an enemy had written it; raise :class:`ManifestInvalid` for one that cannot be."""
    line, _, digest = text.partition(b"\n")
    if hashlib.sha256(line).hexdigest().encode() != digest:
        raise _unusable(where, "its record does not have the digest behind it")
    try:
        record = _RECORDS.decode(line)
        sound = _is_sound(record)
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError) as error:
        raise _unusable(where, f"its record makes no sense ({error})") from error
    if not sound:
        raise _unusable(where, "its record makes no sense")
    return record


def _is_sound(record: ParityRecord) -> bool:
    """Whether lengths, columns and digests fit each other."""
    blocks = -(-record.length // record.block) if record.block > 0 else -1
    return (
        record.version == _VERSION
        and record.length == body_length(record.columns)
        and len(record.columns) <= MOST_COLUMNS
        and all(placed.size > 0 for column in record.columns for placed in column)
        and tuple(record.digests) == PARITY_SUMS.get(record.scheme)
        and all(len(base64.b64decode(text, validate=True)) == blocks * SHA_BYTES for text in record.digests.values())
        and record.manifest_size > 0
    )


def _unusable(where: str, what: str) -> ManifestInvalid:
    return ManifestInvalid(f"{where}: the parity file cannot be used, {what}. `mckpt repair` makes it anew.", where)
