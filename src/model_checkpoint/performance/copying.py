"""Copying: many bytes from one place to another, past the processor's caches where that was compiled."""

from __future__ import annotations

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
