"""Layout: where each tensor lies in one data file, and where its chunks end. Pure arithmetic.

A file is the safetensors header, padded so that data starts on a 4 KiB boundary, then the tensors by falling
alignment, so that each starts aligned without holes. Chunk 0 is the header. A tensor of a chunk's size or more starts
a chunk and is cut from its own start; smaller neighbours share one.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import msgspec

PAGE = 4096


class Tensor(NamedTuple):
    """What a layout needs to know of one tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    alignment: int


class FileLayout(msgspec.Struct, frozen=True, kw_only=True):
    """One data file before it is written."""

    header: bytes
    order: Sequence[int]  # order[i] is the index, in the caller's list, of the i-th tensor of the file
    starts: Sequence[int]  # starts[i] is where it begins; starts[-1] is the end of the file
    ends: Sequence[int]  # where chunks end; ends[0] is the end of the header
    alignments: Sequence[int]  # of the tensors, in file order

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.starts[-1]


def lay_out(tensors: Sequence[Tensor], *, metadata: Mapping[str, str], chunk_bytes: int) -> FileLayout:
    """Place ``tensors`` in one file.

    Example:
        >>> small = Tensor("w", "F32", (2,), 8, 4)
        >>> lay_out([small], metadata={}, chunk_bytes=1 << 22).starts
        [4096, 4104]
    """
    keys = [tensor.alignment for tensor in tensors]
    order = sorted(range(len(tensors)), key=lambda i: -keys[i])
    ordered = [tensors[i] for i in order]
    header = pack_header(ordered, metadata)
    starts = [len(header)]
    for size in map(attrgetter("nbytes"), ordered):
        starts.append(starts[-1] + size)
    return FileLayout(
        header=header,
        order=order,
        starts=starts,
        ends=_chunk_ends(starts, chunk_bytes),
        alignments=[tensor.alignment for tensor in ordered],
    )


def plain_layout(data: bytes) -> FileLayout:
    """Treat a whole file that is no safetensors, such as an index, as one chunk."""
    return FileLayout(header=data, order=(), starts=[len(data)], ends=[len(data)], alignments=())


def opaque_layout(size: int, *, chunk_bytes: int) -> FileLayout:
    """Cut a file whose inside is somebody else's into chunks.

    Example:
        >>> opaque_layout(10, chunk_bytes=4).ends
        [4, 8, 10]
    """
    ends = [*range(chunk_bytes, size, chunk_bytes), size]
    return FileLayout(header=b"", order=(0,), starts=[0, size], ends=ends, alignments=(1,))


def pack_header(tensors: Sequence[Tensor], metadata: Mapping[str, str], *, room: int = PAGE) -> bytes:
    """The safetensors header: length, JSON, and blanks up to the next multiple of ``room``."""
    table: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for tensor in tensors:
        stop = offset + tensor.nbytes
        table[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": (offset, stop)}
        offset = stop
    text = msgspec.json.encode(table)
    text += b" " * (-(len(text) + 8) % room)
    return struct.pack("<Q", len(text)) + text


def _chunk_ends(starts: Sequence[int], chunk_bytes: int) -> list[int]:
    ends = [starts[0]]
    for start, stop in pairwise(starts):
        if stop - start >= chunk_bytes:
            if start > ends[-1]:
                ends.append(start)
            ends.extend(range(start + chunk_bytes, stop, chunk_bytes))
            ends.append(stop)
        elif stop - ends[-1] > chunk_bytes:
            ends.append(start)
    if starts[-1] > ends[-1]:
        ends.append(starts[-1])
    return ends
