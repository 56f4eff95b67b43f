"""Codec: a manifest as bytes and back.

One JSON line, a newline, and the lower-case SHA-256 of that line; above 4 MiB the whole is one zstd frame.
The line begins with all that a listing needs, and a digest of that, so that the first bytes of a long one suffice.
zstd is imported by who meets such a frame.
The reader trusts nothing: size, digest, duplicate keys, version and features are checked before anything is built.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import datetime
from typing import TypeVar

import msgspec

from model_checkpoint.errors import IncompatibleVersion, LimitExceeded, ManifestInvalid
from model_checkpoint.manifest.record import FORMAT_VERSION, Head, Label, Manifest, Summary
from model_checkpoint.manifest.scalars import Node, is_deeper, unpack
from model_checkpoint.options import MIB, CheckpointFormat, CompressionLevel, ReaderLimits

COMPRESSED = "planes-zstd"  # chunks may be split into byte planes and packed with zstd
INCOMPLETE = "incomplete"  # parts were left out; never the newest or the best
OPAQUE = "opaque"  # the files are those of a backend, which alone can read them; the tree says which one
RANKS = "ranks"  # many ranks saved it: their own manifests say where its bytes lie, or values differ by rank
KNOWN_FEATURES: frozenset[str] = frozenset({COMPRESSED, INCOMPLETE, OPAQUE, RANKS})

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_COMPRESS_ABOVE = 4 * MIB
_DIGEST_CHARS = 64
_HEAD_MARK = b',"head":"'  # a quote within a text is escaped, so no text can hold this
_LIMITS = ReaderLimits()
_S = TypeVar("_S", bound=Label)

HEAD_BYTES = 132 << 10  # of a manifest: as much as its head may take; also the first block of a compressed one


def encode(manifest: Manifest) -> bytes:
    """Return the bytes of ``manifest.json``."""
    line = _with_head(manifest)
    text = line + b"\n" + hashlib.sha256(line).hexdigest().encode()
    if len(text) <= _COMPRESS_ABOVE:
        return text
    import zstandard

    return zstandard.ZstdCompressor(level=3, write_content_size=True).compress(text)


def _with_head(manifest: Manifest) -> bytes:
    """The line of ``manifest``, whose head has a digest of its own behind it."""
    label = {field: getattr(manifest, field) for field in Label.__struct_fields__}
    head = msgspec.json.encode(Head(**label, copies=manifest.copies)).removesuffix(b"}")
    rest = msgspec.json.encode(manifest)[len(msgspec.json.encode(Label(**label))) - 1 :]
    return head + _HEAD_MARK + hashlib.sha256(head).hexdigest().encode() + b'"' + rest


def decode(data: bytes, where: str, *, limits: ReaderLimits = _LIMITS) -> Manifest:
    """Return the manifest in ``data``; ``where`` names it in errors."""
    return _decode(data, where, limits, Manifest)


def decode_summary(data: bytes, where: str, *, limits: ReaderLimits = _LIMITS) -> Summary:
    """Return the manifest in ``data`` without its tree and entries, equally checked but much cheaper to build."""
    return _decode(data, where, limits, Summary)


def decode_head(start: bytes, where: str) -> Head | Summary | None:
    """Return what a listing needs, by the first :data:`HEAD_BYTES` of a manifest; None if those do not hold it."""
    if len(start) < HEAD_BYTES:
        return decode_summary(start, where)
    head, mark, rest = _plain_start(start).partition(_HEAD_MARK)
    if not mark or len(rest) < _DIGEST_CHARS:
        return None
    actual = hashlib.sha256(head).hexdigest().encode()
    if rest[:_DIGEST_CHARS] != actual:
        raise _invalid(where, f"the digest of its head is {actual[:12].decode()}..., it says {rest[:12]!r}...")
    return _understood(head + b"}", where, Head, _LIMITS)


def _decode(data: bytes, where: str, limits: ReaderLimits, kind: type[_S]) -> _S:
    return _understood(_checked_line(_plain(data, where, limits), where), where, kind, limits)


def _understood(line: bytes, where: str, kind: type[_S], limits: ReaderLimits) -> _S:
    """Build ``kind`` from a line whose digest is right."""
    _refuse_foreign(_top_level(line, where), where)
    try:
        manifest = msgspec.json.decode(line, type=kind)
        _refuse_depth(manifest, where, limits)
        _refuse_nonsense(manifest)
    except LimitExceeded:
        raise
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as error:
        raise _invalid(where, f"its fields are not those of a manifest ({error})") from error
    return manifest


def _refuse_depth(manifest: Label, where: str, limits: ReaderLimits) -> None:
    """Refuse nesting that whoever walks the nodes could not follow."""
    nodes: list[Node] = [manifest.metrics, manifest.metadata]
    if isinstance(manifest, Manifest):
        nodes.append(manifest.tree)
        nodes += [one.attributes for one in manifest.entries if one.attributes.__class__ is list]
    if any(is_deeper(node, limits.depth) for node in nodes):
        raise LimitExceeded(
            f"{where}: the manifest has more than {limits.depth} arrays inside each other. "
            "It is damaged or hostile; load another step.",
            where,
        )


def _refuse_nonsense(manifest: Label) -> None:
    """Raise ValueError for values no save has written; what a listing shows can then be shown."""
    if datetime.fromisoformat(manifest.created).tzinfo is None:
        raise ValueError(f"the time {manifest.created!r} has no zone")
    CheckpointFormat(manifest.layout)
    CompressionLevel(manifest.compression)
    for node in (manifest.metrics, manifest.metadata):
        if not isinstance(unpack(node), dict | None):
            raise ValueError("metrics or metadata are no mapping")
    if (manifest.step is not None and manifest.step < 0) or manifest.world_size < 1:
        raise ValueError(f"step {manifest.step} of {manifest.world_size} processes")
    if isinstance(manifest, Manifest) and manifest.placed:
        if len(manifest.placed) != len(manifest.entries):
            raise ValueError(f"{len(manifest.entries)} arrays, of which {len(manifest.placed)} have a layout")
        if min(manifest.placed) < 0 or max(manifest.placed) >= len(manifest.layouts):
            raise ValueError(f"arrays in layouts that are none of its {len(manifest.layouts)}")


def _invalid(where: str, what: str) -> ManifestInvalid:
    return ManifestInvalid(
        f"{where}: the manifest cannot be used, {what}. Load another step (`mckpt ls`), or fallback=True.", where
    )


def _plain(data: bytes, where: str, limits: ReaderLimits) -> bytes:
    """Undo the zstd frame, never growing beyond the limit."""
    if not data.startswith(_ZSTD_MAGIC):
        return data
    import zstandard

    try:
        size = zstandard.get_frame_parameters(data).content_size
        if size > limits.manifest_bytes:
            raise LimitExceeded(
                f"{where}: the manifest announces {size} bytes, the limit is {limits.manifest_bytes}. "
                "It is damaged or hostile; load another step.",
                where,
            )
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _invalid(where, f"its compressed frame is damaged ({error})") from error


def _plain_start(start: bytes) -> bytes:
    """As much as the first bytes of a manifest give without the rest; nothing if they are damaged."""
    if not start.startswith(_ZSTD_MAGIC):
        return start
    import zstandard

    try:
        return zstandard.ZstdDecompressor().stream_reader(start).read(HEAD_BYTES)  # never more, whatever it announces
    except zstandard.ZstdError:
        return b""


def _checked_line(text: bytes, where: str) -> bytes:
    """Split off the self-digest and compare it as text."""
    if len(text) < _DIGEST_CHARS + 3:
        raise _invalid(where, f"it has {len(text)} bytes, too few to be one")
    line, newline, digest = text[: -_DIGEST_CHARS - 1], text[-_DIGEST_CHARS - 1 : -_DIGEST_CHARS], text[-_DIGEST_CHARS:]
    actual = hashlib.sha256(line).hexdigest().encode()
    if newline != b"\n" or digest != actual:
        raise _invalid(where, f"its self-digest is {actual[:12].decode()}..., the last line says {digest[:12]!r}...")
    return line


def _top_level(line: bytes, where: str) -> dict[str, msgspec.Raw]:
    """Split the top object; duplicate keys show as missing length, since a dict keeps only one of them."""
    try:
        parts = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise _invalid(where, f"it is not JSON ({error})") from error
    inner = _written(parts) + sum([memoryview(raw).nbytes + 2 for raw in parts.values()])
    length = max(2, 1 + inner)
    if length != len(line):
        raise _invalid(where, "a key stands twice in it, or it has blanks between its parts")
    return parts


def _written(keys: Collection[str]) -> int:
    """The bytes that keys take; those of a manifest are plain words, so nearly always their letters and two quotes."""
    words = "".join(keys)
    if words.isascii() and words.isidentifier():
        return len(words) + 2 * len(keys)
    return sum([len(msgspec.json.encode(key)) for key in keys])


def _refuse_foreign(parts: dict[str, msgspec.Raw], where: str) -> None:
    """Check format, version and features before the rest is looked at."""
    try:
        kind = msgspec.json.decode(parts["format"], type=str)
        version = msgspec.json.decode(parts["format_version"], type=int)
        reader = msgspec.json.decode(parts["min_reader"], type=int)
        features = msgspec.json.decode(parts["features"], type=list[str])
    except (KeyError, msgspec.DecodeError) as error:
        raise _invalid(where, f"format, version or features are missing ({error})") from error
    if kind != "model_checkpoint":
        raise _invalid(where, f"its format is {kind!r}, expected 'model_checkpoint'")
    unknown = [name for name in features if name not in KNOWN_FEATURES]
    if reader > FORMAT_VERSION or unknown:
        need = f"features {unknown}" if unknown else f"a reader of format {reader}"
        raise IncompatibleVersion(
            f"{where}: written in format {version}, needs {need}; this reader knows format {FORMAT_VERSION}. "
            "Upgrade: pip install -U model-checkpoint.",
            where,
        )
