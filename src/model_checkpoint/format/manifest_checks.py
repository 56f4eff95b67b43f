"""Manifest checks: does a manifest make sense by itself? Checked before a file is opened or a byte allocated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import lt

from model_checkpoint.errors import LayoutInvalid, LimitExceeded, UnsafeName
from model_checkpoint.format.digests import are_whole
from model_checkpoint.format.frames import check_frames
from model_checkpoint.format.stored import tensor_bytes
from model_checkpoint.format.subchunks import subchunks_fit
from model_checkpoint.manifest import Entry, FileRecord
from model_checkpoint.options import ReaderLimits

_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_MOST_SIDE = 1 << 62
_CURE = "The manifest is damaged or hostile; load another step."


def check_files(files: Sequence[FileRecord], where: str, limits: ReaderLimits) -> None:
    """Demand safe, distinct file names, as many digests as chunks, one over them all, and frames that can be."""
    seen: set[str] = set()
    for record in files:
        if not _SAFE.fullmatch(record.name) or record.name.casefold() in seen:
            raise UnsafeName(
                f"{where}: the manifest names a file {record.name!r}; names are made of letters, digits, '.', '_', "
                f"'-', once each. {_CURE}",
                where,
                file=record.name[:200],
            )
        seen.add(record.name.casefold())
        _check_chunks(record, where)
        if record.frames:
            check_frames(record, where, limits)


def _check_chunks(record: FileRecord, where: str) -> None:
    ends = record.ends
    rising = bool(ends) and ends[0] > 0 and all(map(lt, ends, ends[1:]))
    fits = rising and subchunks_fit(record) and bool(record.frames or ends[-1] == record.size)
    if not (fits and are_whole(record)):
        raise LayoutInvalid(
            f"{where}: the chunk table of {record.name} does not fit its {record.size} bytes. {_CURE}",
            where,
            file=record.name,
        )


def check_entries(entries: Iterable[Entry], files: Sequence[FileRecord], where: str, limits: ReaderLimits) -> None:
    """Demand that every entry lies inside its file and has the bytes its shape needs."""
    spans = [(record.ends[0], record.ends[-1]) for record in files]
    for entry in entries:
        shape = entry.shape if entry.stored_shape is None else entry.stored_shape
        if len(shape) > limits.rank or len(entry.shape) > limits.rank or len(entry.name) > limits.name_bytes:
            raise LimitExceeded(
                f"{where}: tensor {entry.name[:80]!r} has rank {len(shape)} or a name of {len(entry.name)} characters, "
                f"the limits are {limits.rank} and {limits.name_bytes}.",
                where,
                tensor=entry.name[:200],
            )
        placed = (
            0 <= entry.file < len(spans) and spans[entry.file][0] <= entry.start <= entry.stop <= spans[entry.file][1]
        )
        logical = entry.stored_shape is None or all(0 <= side <= _MOST_SIDE for side in entry.shape)
        if not placed or not logical or tensor_bytes(entry.stored, shape) != entry.stop - entry.start:
            raise LayoutInvalid(
                f"{where}: tensor {entry.name[:80]!r} ({entry.stored} {list(shape)[:8]}) cannot lie at "
                f"[{entry.start}, {entry.stop}) of file {entry.file}. {_CURE}",
                where,
                tensor=entry.name[:200],
            )
