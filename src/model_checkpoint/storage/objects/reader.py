"""Object reader: one data file of an object store, by ranged requests from many threads.

A read asks for exactly its range. Once reads are seen to follow one another, larger blocks are fetched ahead, several
at a time: each request costs a round trip, and few threads read. Memory is a few blocks; a read elsewhere ends it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from model_checkpoint.errors import Truncated
from model_checkpoint.options import MIB
from model_checkpoint.storage.contract.failures import ended
from model_checkpoint.storage.objects.requests.bucket import Bucket
from model_checkpoint.storage.objects.requests.failures import KeyMissing

BLOCK_BYTES = 8 * MIB
BLOCKS_AHEAD = 4
_STREAK = 3  # so many reads in a row are no accident


@dataclass(slots=True, eq=False)
class _Block:
    """Bytes ``[start, stop)`` on their way."""

    start: int
    stop: int
    data: Future[memoryview]
    left: int  # bytes nobody has taken yet


class ObjectReader:
    """One file; see :class:`model_checkpoint.storage.contract.store.Reader`."""

    def __init__(self, bucket: Bucket, key: str, *, size: int, where: str, file: str) -> None:
        self._bucket, self._key, self._size = bucket, key, size
        self._where, self._file = where, file
        self._lock = threading.Lock()
        self._front = self._streak = 0  # how far reads came that follow one another, and how many they are
        self._late = 0  # reads in a row from far behind: so many, and they are the new streak
        self._blocks: list[_Block] = []  # in file order, one behind the other
        self._pool: ThreadPoolExecutor | None = None

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._size

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset``."""
        view = memoryview(buffer).cast("B")
        if offset + len(view) > self._size:
            raise ended(self._where, self._file, wanted=range(offset, offset + len(view)), end=self._size)
        try:
            for block, start, stop in self._claim(offset, offset + len(view)):
                room = view[start - offset : stop - offset]
                if block is None:
                    _copy(room, self._fetch(start, stop))
                else:
                    _copy(room, block.data.result()[start - block.start : stop - block.start])
        except KeyMissing as error:
            raise gone(self._where, self._file) from error

    def _fetch(self, start: int, stop: int) -> memoryview:
        data = self._bucket.read(self._key, start, stop - start)
        if len(data) != stop - start:
            raise ended(self._where, self._file, wanted=range(start, stop), end=start + len(data))
        return data

    def _claim(self, start: int, stop: int) -> list[tuple[_Block | None, int, int]]:
        """Cut ``[start, stop)`` into pieces that blocks ahead hold and pieces to ask for; look further ahead."""
        with self._lock:
            pieces = list(self._cut(start, stop))
            self._follow(start, stop, known=any(block is not None for block, _, _ in pieces))
            for block, lower, upper in pieces:
                if block is not None:
                    block.left -= upper - lower
            self._blocks = [block for block in self._blocks if block.left > 0]
            if self._streak >= _STREAK:
                self._look_ahead()
        return pieces

    def _follow(self, start: int, stop: int, *, known: bool) -> None:
        """Note whether a read continues those before it; threads overtake each other, and one may come late."""
        if known or abs(start - self._front) <= BLOCK_BYTES:
            self._streak, self._late = self._streak + 1, 0
        elif start < self._front and self._late < _STREAK - 1:
            self._late += 1
            return
        else:
            self._streak, self._late, self._front = 1, 0, 0
            self._blocks.clear()
        self._front = max(self._front, stop)

    def _cut(self, start: int, stop: int) -> Iterator[tuple[_Block | None, int, int]]:
        for block in self._blocks:
            if start < stop and block.start <= start < block.stop:
                upper = min(stop, block.stop)
                yield block, start, upper
                start = upper
        if start < stop:
            yield None, start, stop

    def _look_ahead(self) -> None:
        """Begin to fetch what comes next, as far as memory allows."""
        front = max([self._front, *(block.stop for block in self._blocks)])
        while front < self._size and len(self._blocks) < BLOCKS_AHEAD:
            stop = min(front + BLOCK_BYTES, self._size)
            if self._pool is None:
                self._pool = ThreadPoolExecutor(BLOCKS_AHEAD, thread_name_prefix="mckpt-ahead")
            data = self._pool.submit(self._fetch, front, stop)
            self._blocks.append(_Block(start=front, stop=stop, data=data, left=stop - front))
            front = stop

    def map(self) -> memoryview | None:
        """Nothing to map."""
        return None

    def close(self) -> None:
        """Fetch nothing more."""
        with self._lock:
            self._blocks.clear()
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)
                self._pool = None


def _copy(room: memoryview, data: memoryview) -> None:
    """Copy without holding up other threads, which plain assignment does."""
    np.copyto(np.frombuffer(room, dtype=np.uint8), np.frombuffer(data, dtype=np.uint8))


def gone(where: str, file: str) -> Truncated:
    """The error for a file that is not, or no longer, there."""
    return Truncated(
        f"{where}: the file {file} is gone. It was deleted or replaced meanwhile, or the checkpoint is damaged: "
        "read the manifest again, run `mckpt verify`, or load another step.",
        where,
        file=file,
    )
