"""Header: read the head of a data file as if an enemy had written it.

Nothing is allocated or believed before it is checked against the file's real size, the limits and the manifest.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

import msgspec

from model_checkpoint.errors import (
    HeaderTooLarge,
    LayoutInvalid,
    LimitExceeded,
    ManifestMismatch,
    Truncated,
    UnsafeName,
)
from model_checkpoint.format.stored import tensor_bytes
from model_checkpoint.manifest import Entry
from model_checkpoint.options import ReaderLimits

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def header_length(prefix: bytes, *, size: int, where: str, limits: ReaderLimits) -> int:
    """Return how many bytes the whole header takes, from its first 8 bytes."""
    if len(prefix) < 8:
        raise Truncated(f"{where}: {len(prefix)} bytes are too few for a data file. Load another step.", file=where)
    (length,) = struct.unpack("<Q", prefix[:8])
    if length > limits.header_bytes or length + 8 > size:
        raise HeaderTooLarge(
            f"{where}: announces a header of {length} bytes; the file has {size}, the limit is {limits.header_bytes}. "
            "It is damaged or hostile; load another step.",
            file=where,
        )
    return int(length) + 8


def check_header(data: bytes, entries: Sequence[Entry], *, size: int, where: str, limits: ReaderLimits) -> None:
    """Check that the header in ``data`` says of the file exactly what the manifest's ``entries`` say."""
    length = header_length(data[:8], size=size, where=where, limits=limits)
    if length != len(data):
        raise LayoutInvalid(
            f"{where}: header of {length} bytes, manifest says {len(data)}. Load another step.", file=where
        )
    rows = _rows(data[8:], where, limits)
    _refuse_gaps(rows, size - length, where)
    expected = {entry.name: entry for entry in entries}
    if rows.keys() != expected.keys():
        odd = sorted(rows.keys() ^ expected.keys())[:3]
        raise ManifestMismatch(
            f"{where}: header and manifest name different tensors, e.g. {odd}. The file belongs to another checkpoint; "
            "load another step.",
            file=where,
        )
    for name, entry in expected.items():
        row = rows[name]
        start, stop = row.data_offsets[0] + length, row.data_offsets[1] + length
        shape = entry.shape if entry.stored_shape is None else entry.stored_shape
        placed = start == entry.start and stop == entry.stop
        if not placed or row.dtype != entry.stored or row.shape != shape:
            got, told = (row.dtype, row.shape, start, stop), (entry.stored, shape, entry.start, entry.stop)
            raise ManifestMismatch(
                f"{where}: tensor {name!r} is {got} in the header, {told} in the manifest. Load another step.",
                file=where,
                tensor=name,
            )


_DECODER = msgspec.json.Decoder(dict[str, _Row])  # made once: threads that load at once must not be the first


def _rows(text: bytes, where: str, limits: ReaderLimits) -> dict[str, _Row]:
    if not text.startswith(b"{"):
        raise LayoutInvalid(f"{where}: the header does not start with '{{'. Load another step.", file=where)
    try:
        raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        if len(raw) > limits.tensors_per_file + 1:
            raise LimitExceeded(f"{where}: {len(raw)} tensors, the limit is {limits.tensors_per_file}.", file=where)
        if msgspec.json.encode(raw) != text.rstrip(b" "):  # a dict keeps only one of two equal names
            raise LayoutInvalid(
                f"{where}: a tensor name stands twice in the header, or blanks stand in it.", file=where
            )
        raw.pop("__metadata__", None)
        rows = _DECODER.decode(msgspec.json.encode(raw))
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise LayoutInvalid(f"{where}: the header is not readable ({error}). Load another step.", file=where) from error
    if _CONTROL.search("".join(rows)) or 4 * max(map(len, rows), default=0) > limits.name_bytes:
        for name in rows:
            if len(name.encode()) > limits.name_bytes or _CONTROL.search(name):
                what = "is too long or has control characters"
                raise UnsafeName(f"{where}: tensor name {name[:40]!r} {what}.", file=where)
    for name, row in rows.items():
        if len(row.shape) > limits.rank:
            raise LimitExceeded(
                f"{where}: tensor {name!r} has {len(row.shape)} dimensions, the limit is {limits.rank}.", file=where
            )
    return rows


def _refuse_gaps(rows: dict[str, _Row], data_bytes: int, where: str) -> None:
    """Demand that the tensors cover the data exactly, in some order, without hole or overlap."""
    offset = 0
    for name, row in sorted(rows.items(), key=lambda item: item[1].data_offsets):
        start, stop = row.data_offsets
        if start != offset or stop < start or stop > data_bytes:
            raise LayoutInvalid(
                f"{where}: tensor {name!r} lies at [{start}, {stop}), expected to start at {offset} and end by "
                f"{data_bytes}. Load another step.",
                file=where,
                tensor=name,
            )
        needed = tensor_bytes(row.dtype, row.shape)
        if needed != stop - start:
            raise LayoutInvalid(
                f"{where}: tensor {name!r} of {row.dtype} {list(row.shape)} needs {needed} bytes, has {stop - start}.",
                file=where,
                tensor=name,
            )
        offset = stop
    if offset != data_bytes:
        raise LayoutInvalid(
            f"{where}: the tensors cover {offset} bytes of {data_bytes}. Load another step.", file=where
        )
