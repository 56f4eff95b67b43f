"""Rank manifest: what one rank has written of a checkpoint that many ranks wrote.

The manifest of the checkpoint lists those of the ranks by name, size and digest; where the bytes of an array lie, only
those say.
"""

from __future__ import annotations

import hashlib

import msgspec

from model_checkpoint.errors import ManifestInvalid
from model_checkpoint.manifest.record import FileRecord

RANK_FORMAT = "model_checkpoint.rank"


class StoredPiece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A box of an array, and the bytes ``[start, stop)`` of one data file of a rank that hold it."""

    entry: int  # in the manifest of the checkpoint
    name: str  # in the data file
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    file: int  # in the rank's manifest
    start: int
    stop: int
    digest: str


class RankManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank wrote."""

    format: str = RANK_FORMAT
    attempt: str
    rank: int
    files: tuple[FileRecord, ...] = ()
    pieces: tuple[StoredPiece, ...] = ()


_DECODER = msgspec.json.Decoder(RankManifest)  # made once: msgspec crashes where two threads meet a class first


def encode_rank(manifest: RankManifest) -> bytes:
    """Return the bytes of a rank's manifest."""
    return msgspec.json.encode(manifest)


def decode_rank(data: bytes, where: str, *, sha256: str, attempt: str) -> RankManifest:
    """Return a rank's manifest; its digest is that of the checkpoint's manifest, so nothing else is believed."""
    actual = hashlib.sha256(data).hexdigest()
    if actual != sha256:
        raise _invalid(where, f"its digest is {actual[:12]}..., the checkpoint's manifest says {sha256[:12]}...")
    try:
        manifest = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise _invalid(where, f"its fields are not those of one ({error})") from error
    if manifest.format != RANK_FORMAT or manifest.attempt != attempt:
        raise _invalid(where, f"it is of another save ({manifest.attempt[:40]!r}, expected {attempt!r})")
    odd = next((piece for piece in manifest.pieces if len(piece.offsets) != len(piece.shape)), None)
    if odd is not None:
        raise _invalid(where, f"its piece {odd.name[:40]!r} lies at {odd.offsets[:8]}, of shape {odd.shape[:8]}")
    return manifest


def _invalid(where: str, what: str) -> ManifestInvalid:
    return ManifestInvalid(
        f"{where}: the manifest of this rank cannot be used, {what}. Load another step (`mckpt ls`), or fallback=True.",
        where,
    )
