"""Frames: a data file whose tensors are compressed chunks.

It is a valid safetensors file: chunk ``i`` is a U8 tensor ``c0000i``. Tensors keep their addresses in the file as it
would be decompressed (entries, chunk ends and digests speak of those); the frames of the file's record say where each
chunk lies in truth. The header's length is that of a file in which nothing shrank, so it can be written last.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from itertools import pairwise

from model_checkpoint.errors import LayoutInvalid, LimitExceeded
from model_checkpoint.format.byte_planes import MOST_WIDTH, PLANES, RAW
from model_checkpoint.format.digests import XXH_BYTES
from model_checkpoint.format.layout import FileLayout, Tensor, pack_header
from model_checkpoint.manifest import Entry, FileRecord, Frame
from model_checkpoint.options import ReaderLimits

_CURE = "The manifest is damaged or hostile; load another step."


def frame_name(chunk: int) -> str:
    """What chunk number ``chunk`` is called in the header.

    Example:
        >>> frame_name(1)
        'c00001'
    """
    return f"c{chunk:05d}"


def reserve_frames(layout: FileLayout, *, metadata: Mapping[str, str], limits: ReaderLimits) -> FileLayout:
    """The layout of a compressed file: the same chunks, behind a header with room for their frames."""
    if len(layout.ends) - 1 > limits.tensors_per_file:
        raise LimitExceeded(
            f"a compressed file of {len(layout.ends) - 1} chunks: readers grant {limits.tensors_per_file}. "
            "Save with CheckpointFormat.MULTI_SHARD, which cuts it into smaller files."
        )
    sizes = [stop - start for start, stop in pairwise(layout.ends)]
    header = pack_header(_tensors(sizes), metadata)
    shift = len(header) - layout.ends[0]
    return FileLayout(
        header=header,
        order=layout.order,
        starts=[start + shift for start in layout.starts],
        ends=[end + shift for end in layout.ends],
        alignments=layout.alignments,
    )


def frame_header(frames: Sequence[Frame], *, metadata: Mapping[str, str], room: int) -> bytes:
    """The header of a file that holds ``frames``, filled up to the ``room`` it was given."""
    return pack_header(_tensors([frame.stop - frame.start for frame in frames[1:]]), metadata, room=room)


def _tensors(sizes: Sequence[int]) -> list[Tensor]:
    return [Tensor(frame_name(i), "U8", (size,), size, 1) for i, size in enumerate(sizes, start=1)]


def frame_entries(record: FileRecord) -> list[Entry]:
    """The tensors that the header of a compressed file must name."""
    return [
        Entry(
            name=frame_name(chunk),
            kind="",
            dtype="",
            shape=(frame.stop - frame.start,),
            stored="U8",
            stored_shape=None,
            file=0,
            start=frame.start,
            stop=frame.stop,
            digest="",
        )
        for chunk, frame in enumerate(record.frames[1:], start=1)
    ]


def raw_frame(start: int, stop: int) -> Frame:
    """A chunk that is stored as it is; its digest is that of the chunk.

    Example:
        >>> raw_frame(0, 4096).codec
        'raw'
    """
    return Frame(start=start, stop=stop, codec=RAW, width=1, xxh3="")


def planes_frame(start: int, stop: int, *, width: int, xxh3: bytes) -> Frame:
    """A chunk that is stored compressed; ``xxh3`` is of its stored bytes."""
    return Frame(start=start, stop=stop, codec=PLANES, width=width, xxh3=base64.b64encode(xxh3).decode())


def stored_xxh3(frame: Frame) -> bytes:
    """The digest of the stored bytes of a compressed chunk."""
    return base64.b64decode(frame.xxh3, validate=True)


def check_frames(record: FileRecord, where: str, limits: ReaderLimits) -> None:
    """Demand that the frames of a file follow each other without hole or overlap and that none grew."""
    frames, ends = record.frames, record.ends
    joined = all(a.stop == b.start for a, b in pairwise(frames))
    fits = len(frames) == len(ends) and joined and frames[-1].stop == record.size
    if not fits or frames[0] != raw_frame(0, ends[0]):
        raise LayoutInvalid(
            f"{where}: the frames of {record.name} do not cover its {record.size} bytes. {_CURE}",
            where,
            file=record.name,
        )
    for chunk, (start, stop) in enumerate(pairwise(ends), start=1):
        if stop - start > limits.frame_bytes:
            raise LimitExceeded(
                f"{where}: chunk {chunk} of {record.name} would unpack to {stop - start} bytes, the limit is "
                f"{limits.frame_bytes}. {_CURE}",
                where,
                file=record.name,
                chunk=chunk,
            )
        if not _is_sound(frames[chunk], stop - start):
            raise LayoutInvalid(
                f"{where}: the frame of chunk {chunk} of {record.name} cannot be ({frames[chunk]} for {stop - start} "
                f"bytes). {_CURE}",
                where,
                file=record.name,
                chunk=chunk,
            )


def _is_sound(frame: Frame, size: int) -> bool:
    stored = frame.stop - frame.start
    if frame.codec == RAW:
        return stored == size
    try:
        digest = stored_xxh3(frame)
    except (binascii.Error, ValueError):
        return False
    return frame.codec == PLANES and 0 < stored < size and 1 <= frame.width <= MOST_WIDTH and len(digest) == XXH_BYTES
