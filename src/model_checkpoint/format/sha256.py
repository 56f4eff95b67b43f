"""SHA-256 of several chunks at once: side by side where the processor can, else one after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

try:
    from model_checkpoint.format._sha256_lanes import copy_each as copy_each
    from model_checkpoint.format._sha256_lanes import sha256_each as sha256_each

    SIDE_BY_SIDE = True
except ImportError:  # installed without a compiler, or the processor has no SHA unit
    SIDE_BY_SIDE = False

    def sha256_each(chunks: Sequence[memoryview], /) -> list[bytes]:
        """The digest of each chunk."""
        return [hashlib.sha256(chunk).digest() for chunk in chunks]

    def copy_each(chunks: Sequence[memoryview], rooms: Sequence[memoryview], /) -> list[bytes]:
        """The digest of each chunk, which is copied into its room on the way."""
        for chunk, room in zip(chunks, rooms, strict=True):
            room[:] = chunk
        return sha256_each(chunks)
