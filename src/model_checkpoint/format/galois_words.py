"""Galois words: sums in the field GF(2^8) by NumPy, eight bytes a word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from model_checkpoint.format.galois_field import MOST_COLUMNS, product

_BLOCK = 1 << 18  # bytes of a column at a time, so that the sums stay in the cache
_Words = npt.NDArray[np.uint64]


def add_up(columns: Sequence[memoryview | None], p: memoryview, q: memoryview | None, /) -> None:
    r"""Put the sums of ``columns`` (None stands for zeros) into ``p`` and ``q``, by Horner's rule.

    Example:
        >>> p, q = memoryview(bytearray(2)), memoryview(bytearray(2))
        >>> add_up([memoryview(b"ab"), None, memoryview(b"cd")], p, q)
        >>> bytes(p), bytes(q)
        (b'\x02\x06', b'\xf0\xef')
    """
    if any(len(column) != len(p) for column in columns if column is not None) or (q is not None and len(q) != len(p)):
        raise ValueError("columns and sums of a stripe must be of one length")
    if len(columns) > MOST_COLUMNS:
        raise ValueError(f"a stripe has at most {MOST_COLUMNS} columns, got {len(columns)}")
    for start in range(0, len(p), _BLOCK):
        stop = min(len(p), start + _BLOCK)
        first, second = _sums(columns, start, stop, doubly=q is not None)
        p[start:stop] = first.view(np.uint8)[: stop - start].data
        if q is not None:
            q[start:stop] = second.view(np.uint8)[: stop - start].data


def _sums(columns: Sequence[memoryview | None], start: int, stop: int, *, doubly: bool) -> tuple[_Words, _Words]:
    words = -(-(stop - start) // 8)
    p, q = np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    padded = np.zeros(words * 8, np.uint8)
    for column in reversed(columns):
        if doubly:
            tops = q & np.uint64(0x8080808080808080)
            q = ((q ^ tops) << np.uint64(1)) ^ ((tops >> np.uint64(7)) * np.uint64(0x1D))
        if column is not None:
            padded[: stop - start] = np.frombuffer(column, np.uint8)[start:stop]
            p ^= padded.view(np.uint64)
            q ^= padded.view(np.uint64)
    return p, q


def add_multiple(data: memoryview, factor: int, into: memoryview, /) -> None:
    """Add ``factor`` times ``data`` to ``into``."""
    if len(data) != len(into) or not 0 <= factor < 256:
        raise ValueError("a multiple is by a byte, and of the length of its sum")
    table = np.array([product(factor, byte) for byte in range(256)], np.uint8)
    target = np.frombuffer(into, np.uint8)
    target ^= table[np.frombuffer(data, np.uint8)]
