"""File stream: bytes in order, of any length, to a file that is written in aligned slabs."""

from __future__ import annotations

from model_checkpoint.engine.common.aligned_memory import PAGE, aligned_memory
from model_checkpoint.options import MIB
from model_checkpoint.storage.contract.store import Writer

_SLAB = 4 * MIB


class FileStream:
    """Gathers what comes into slabs; ``close`` writes the rest and seals the file."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._slab = aligned_memory(_SLAB)
        self._written = self._filled = 0

    def write(self, data: memoryview) -> None:
        """Take the next bytes of the file."""
        done = 0
        while done < len(data):
            taken = min(len(data) - done, _SLAB - self._filled)
            self._slab[self._filled : self._filled + taken] = data[done : done + taken]
            self._filled, done = self._filled + taken, done + taken
            if self._filled == _SLAB:
                self._flush(_SLAB)

    def _flush(self, length: int) -> None:
        self._writer.write(self._written, self._slab[:length])
        self._written, self._filled = self._written + self._filled, 0

    def close(self) -> None:
        """Write what is left, and make the file durable."""
        size = self._written + self._filled
        if self._filled:
            unit = self._writer.alignment
            length = -(-self._filled // unit) * unit
            self._slab[self._filled : length] = bytes(length - self._filled)
            self._flush(length)
        self._writer.seal(size)


assert _SLAB % PAGE == 0  # so that every slab but the last begins and ends on a page
