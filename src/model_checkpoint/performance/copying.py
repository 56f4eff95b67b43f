"""Copying: many bytes from one place to another, past the processor's caches where that was compiled; or a few."""

from __future__ import annotations

import ctypes

import numpy as np

try:
    from model_checkpoint.performance._stream_copy import stream_copy as stream_copy

    STREAMING = True
except ImportError:  # installed without a compiler
    STREAMING = False

    def stream_copy(room: memoryview, data: memoryview, /) -> None:
        """Fill ``room`` with ``data``, without the GIL."""
        if len(room) != len(data):
            raise ValueError(f"{len(data)} bytes do not fit a room of {len(room)}")
        np.copyto(np.frombuffer(room, dtype=np.uint8), np.frombuffer(data, dtype=np.uint8))


_MOVE = ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0
# Copies bytes between two addresses and keeps the GIL: for so few that to make views of both would take longer.
move_bytes = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(_MOVE)


def address_of(data: memoryview) -> int:
    """Return where bytes lie.

    Example:
        >>> word, room = memoryview(b"word"), memoryview(bytearray(4))
        >>> move_bytes(address_of(room), address_of(word), 4)
        >>> bytes(room)
        b'word'
    """
    return int(np.frombuffer(data, np.uint8).ctypes.data)
