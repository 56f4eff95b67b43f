"""Byte planes: compress the bytes of one chunk, and give them back exactly.

Numbers of ``width`` bytes are split into planes: all first bytes, all second bytes, and so on. Exponents end up beside
each other and compress well; mantissas are noise and stay as they are. A frame is one little-endian u32 per plane, its
stored length, then the planes; a plane stored at its full length is raw, any other is one zstd frame. Every width gives
back every input: plane ``i`` is each ``width``-th byte from byte ``i`` on, whatever the length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import zstandard

from model_checkpoint.errors import CorruptedCheckpoint
from model_checkpoint.manifest import COMPRESSED
from model_checkpoint.options import CompressionLevel

PLANES = COMPRESSED
RAW = "raw"
MOST_WIDTH = 16

_ZSTD_LEVELS = {CompressionLevel.FAST: 1, CompressionLevel.BALANCED: 6, CompressionLevel.MAXIMUM: 19}
_SAMPLE = 64 << 10  # bytes of a plane that are tried out before the whole is compressed
_SAMPLE_PIECES = 4
_SCOUT_LEVEL = 6  # trying out a sample at the slowest level would cost more than the plane
_WORTHWHILE = 0.98  # what shrinks less is not worth the slower way

if TYPE_CHECKING:  # who reads raw files has no use for NumPy
    import numpy as np
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]


class FrameBroken(CorruptedCheckpoint):
    """The bytes of a frame cannot be what :class:`Compressor` made; the caller knows where they lie."""


class Compressor:
    """Turns chunks into frames; belongs to one thread, keeps its memory from chunk to chunk.

    Example:
        >>> import numpy as np
        >>> compressor = Compressor(CompressionLevel.FAST)
        >>> chunk = np.arange(4096, dtype=np.uint32).view(np.uint8)
        >>> frame = b"".join(compressor.compress(chunk, 4))
        >>> room = np.empty(len(chunk), np.uint8)
        >>> decompress(memoryview(frame), room, 4)
        >>> len(frame) < len(chunk), bool((room == chunk).all())
        (True, True)
    """

    def __init__(self, level: CompressionLevel) -> None:
        import numpy as np

        # bytes of exponents repeat by chance only: a coder that looks for no matches is better and faster there
        plain = zstandard.ZstdCompressionParameters.from_level(1, min_match=7, hash_log=6, target_length=0)
        self._entropy = zstandard.ZstdCompressor(compression_params=plain)
        self._matches = zstandard.ZstdCompressor(level=_ZSTD_LEVELS[level])
        self._scout = zstandard.ZstdCompressor(level=min(_SCOUT_LEVEL, _ZSTD_LEVELS[level]))
        self._planes = np.empty(0, dtype=np.uint8)

    def compress(self, chunk: Bytes, width: int) -> list[memoryview]:
        """Return the parts of the frame of ``chunk``, or the chunk itself as the only part if no frame is smaller.

        The parts are valid until the next call.
        """
        parts = [self._compress_plane(plane) for plane in self._split(chunk, width)]
        table = struct.pack(f"<{width}I", *map(len, parts))
        if len(table) + sum(map(len, parts)) >= len(chunk):
            return [chunk.data]
        return [memoryview(table), *parts]

    def _split(self, chunk: Bytes, width: int) -> Iterator[Bytes]:
        import numpy as np

        if width == 1:
            yield chunk
            return
        if len(self._planes) < len(chunk):
            self._planes = np.empty(len(chunk), dtype=np.uint8)
        start = 0
        for i in range(width):
            part = chunk[i::width]
            plane = self._planes[start : start + len(part)]
            np.copyto(plane, part)
            start += len(part)
            yield plane

    def _compress_plane(self, plane: Bytes) -> memoryview:
        """The smaller of the plane and its best zstd frame; noise is known by a sample."""
        if len(plane) <= _SAMPLE:
            best = min(self._entropy.compress(plane.data), self._matches.compress(plane.data), key=len)
            return memoryview(best) if len(best) < len(plane) else plane.data
        sample = _sample(plane)
        by_entropy, by_matches = len(self._entropy.compress(sample)), len(self._scout.compress(sample))
        if min(by_entropy, by_matches) > _WORTHWHILE * _SAMPLE:
            return plane.data
        coder = self._matches if by_matches < _WORTHWHILE * by_entropy else self._entropy
        best = coder.compress(plane.data)
        return memoryview(best) if len(best) < len(plane) else plane.data


def _sample(plane: Bytes) -> bytes:
    """A few pieces from all over a plane."""
    piece = _SAMPLE // _SAMPLE_PIECES
    gap = (len(plane) - piece) // (_SAMPLE_PIECES - 1)
    return b"".join(plane[i * gap : i * gap + piece].tobytes() for i in range(_SAMPLE_PIECES))


def decompress(frame: memoryview, room: Bytes, width: int) -> None:
    """Fill ``room`` from ``frame``, never making more bytes than ``room`` has; raise :class:`FrameBroken`."""
    import numpy as np

    lengths = _table(frame, len(room), width)
    start = 4 * width
    for i, length in enumerate(lengths):
        part = room[i::width]
        stored = frame[start : start + length]
        plane = stored if length == len(part) else _plain(stored, len(part))
        np.copyto(part, np.frombuffer(plane, dtype=np.uint8))
        start += length


def _table(frame: memoryview, size: int, width: int) -> Sequence[int]:
    """The lengths of the planes, checked against the frame and the planes themselves."""
    if len(frame) < 4 * width:
        raise FrameBroken(f"a frame of {len(frame)} bytes has no room for the lengths of {width} planes")
    lengths = struct.unpack(f"<{width}I", frame[: 4 * width])
    if sum(lengths) != len(frame) - 4 * width:
        raise FrameBroken(f"its planes take {sum(lengths)} bytes, the frame has {len(frame) - 4 * width}")
    for i, length in enumerate(lengths):
        if length > -(-(size - i) // width):
            raise FrameBroken(f"plane {i} has {length} bytes, at most {-(-(size - i) // width)} are possible")
    return lengths


def _plain(stored: memoryview, size: int) -> bytes:
    """Undo one zstd frame; what it announces is compared before a byte is allocated."""
    try:
        announced = zstandard.get_frame_parameters(stored).content_size
        if announced != size:
            raise FrameBroken(f"a plane announces {announced} bytes, expected {size}")
        return zstandard.ZstdDecompressor().decompress(stored, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise FrameBroken(f"a plane cannot be unpacked ({error})") from error
