"""Object writer: one data file on its way to an object store.

Slabs come in any order, an upload wants them in file order. Those that come early wait in memory up to a window, those
beyond it on the local disk, so that no order can exhaust memory or block for ever; while the network is the slow part,
whoever brings a slab waits.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from model_checkpoint.errors import StorageFailure
from model_checkpoint.options import MIB
from model_checkpoint.storage.contract.failures import misused, require_within, sealed_size, typed_errors
from model_checkpoint.storage.contract.store import FileStat
from model_checkpoint.storage.objects.requests.bucket import PART_BYTES, PARTS_AT_ONCE, Bucket, ObjectMeta, log
from model_checkpoint.storage.objects.requests.failures import KeyMissing

WINDOW_BYTES = 64 * MIB
COPY_BYTES = 4 << 30  # the most a server copies in one request
_LEAST_PART = 5 * MIB  # stores take no shorter ones, but for the last


class _GivenUp(Exception):
    """Ends an upload that nobody wants any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """The memory one file may take on its way: slabs that wait for their turn, and parts under way.

    Example:
        >>> Buffers() == Buffers.within(1 << 40), Buffers.within(0).nbytes == Buffers.least()
        (True, True)
    """

    window: int = WINDOW_BYTES
    part: int = PART_BYTES
    at_once: int = PARTS_AT_ONCE

    @property
    def nbytes(self) -> int:
        """All of it: one more part is being filled, and one block of slabs is on its way there."""
        return self.window + (self.at_once + 2) * self.part

    @classmethod
    def least(cls) -> int:
        """The least that works."""
        return cls.within(0).nbytes

    @classmethod
    def within(cls, nbytes: int) -> Buffers:
        """As much as ``nbytes`` allows, two thirds of it for parts; never less than one part at a time."""
        part = PART_BYTES if nbytes >= 8 * PART_BYTES else _LEAST_PART
        at_once = min(PARTS_AT_ONCE, max(1, nbytes * 2 // 3 // part - 2))
        return cls(window=min(WINDOW_BYTES, max(part, nbytes - (at_once + 2) * part)), part=part, at_once=at_once)


class _Spill:
    """Slabs that came so early that memory is not for them."""

    def __init__(self, where: str) -> None:
        with typed_errors(where, "could not make room on the local disk for slabs that came early"):
            self._file = tempfile.TemporaryFile(prefix="mckpt-")  # noqa: SIM115  # closed with the stream
        self._where = where

    def put(self, offset: int, data: memoryview) -> None:
        with typed_errors(self._where, "could not keep a slab that came early on the local disk"):
            while len(data):
                done = os.pwrite(self._file.fileno(), data, offset)
                offset, data = offset + done, data[done:]

    def take(self, offset: int, size: int) -> bytes:
        with typed_errors(self._where, "could not read a slab back from the local disk"):
            data = os.pread(self._file.fileno(), size, offset)
            while len(data) < size:
                data += os.pread(self._file.fileno(), size - len(data), offset + len(data))
        return data

    def close(self) -> None:
        self._file.close()


class _Stream:
    """One upload in parts, fed in order by whoever brings slabs."""

    def __init__(self, bucket: Bucket, key: str, size: int, buffers: Buffers) -> None:
        self._bucket, self._key, self._size, self._buffers = bucket, key, size, buffers
        self._changed = threading.Condition()
        self._ready: deque[bytes] = deque()  # next to upload
        self._early: dict[int, bytes | int] = {}  # offset -> slab, or its length if it is on the disk
        self._next = self._held = self._sent = 0  # first byte still missing; bytes in memory; bytes handed on
        self._starving = self._over = False
        self._error: BaseException | None = None
        self._spill: _Spill | None = None
        self._thread = threading.Thread(target=self._upload, name="mckpt-upload", daemon=True)
        self._thread.start()

    def write(self, offset: int, data: memoryview) -> None:
        with self._changed:
            if offset < self._next or offset in self._early:
                raise misused(self._bucket.where(self._key), f"byte {offset} was written before")
            if self._wait_for_room(offset, len(data)):
                self._early[offset] = bytes(data)
                self._held += len(data)
            else:
                self._spill = self._spill or _Spill(self._bucket.where(self._key))
                self._spill.put(offset, data)
                self._early[offset] = len(data)
            self._line_up()

    def _wait_for_room(self, offset: int, size: int) -> bool:
        """Wait until memory has room; False if it will not, since the upload waits for a slab that is yet to come."""
        while True:
            if self._error is not None:
                raise self._error
            if self._held + size <= self._buffers.window or (offset == self._next and not self._ready):
                return True  # the slab the upload waits for is always let in
            if self._starving and offset != self._next:
                return False
            self._changed.wait()

    def _line_up(self) -> None:
        """Move every slab whose turn has come to the upload; one on the disk is read when it is needed."""
        while self._next in self._early and (len(self._ready) == 0 or not isinstance(self._early[self._next], int)):
            slab = self._early.pop(self._next)
            if isinstance(slab, int):
                assert self._spill is not None
                slab = self._spill.take(self._next, slab)
                self._held += len(slab)
            self._ready.append(slab)
            self._next += len(slab)
        self._changed.notify_all()

    def _blocks(self) -> Iterator[bytes]:
        self._sent = 0
        while self._sent < self._size:
            with self._changed:
                self._starving = not self._ready
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._ready or self._over or self._sent >= self._size)
                self._starving = False
                if self._over:
                    raise _GivenUp
                if not self._ready:
                    return  # the file ended up shorter than announced, and all of it is sent
                block = self._ready.popleft()
                self._held -= len(block)
                self._line_up()
                self._sent += len(block)
            yield block

    def _upload(self) -> None:
        try:
            part, at_once = self._buffers.part, self._buffers.at_once
            self._bucket.put_stream(self._key, self._blocks(), self._size, part_bytes=part, at_once=at_once)
        except BaseException as error:  # noqa: BLE001  # carried to whoever writes or seals
            with self._changed:
                self._error = error
                self._changed.notify_all()

    @property
    def held(self) -> int:
        return self._held

    def finish(self, size: int) -> None:
        with self._changed:
            self._size = size
            self._changed.notify_all()
        self._thread.join()
        self._close()
        if self._error is not None:
            raise self._error

    def give_up(self) -> None:
        with self._changed:
            self._over = True
            self._error = self._error or misused(self._bucket.where(self._key), "the attempt was given up")
            self._changed.notify_all()
        self._thread.join()
        self._close()

    def _close(self) -> None:
        if self._spill is not None:
            self._spill.close()


def stamp_of(found: ObjectMeta) -> FileStat:
    """What the store tells of an object; a copy on the server is a copy of its own, so keys are part of identity."""
    return FileStat(size=found.size, identity=f"{found.key}#{found.version}", links=1)


class ObjectCopy:
    """One file that the server copied from another checkpoint."""

    sealed = touched = True

    def __init__(self, key: str, stamp: FileStat) -> None:
        self.key, self.stamp = key, stamp

    def give_up(self) -> None:
        """Nothing is under way."""


class ObjectWriter:
    """One file being written; see :class:`model_checkpoint.storage.contract.store.Writer`."""

    alignment = 1

    def __init__(self, bucket: Bucket, key: str, size: int, *, buffers: Buffers) -> None:
        self._bucket, self.key, self._size, self._buffers = bucket, key, size, buffers
        self._where = bucket.where(key)
        self._written, self._open = 0, True
        self._lock = threading.Lock()
        self._whole = bytearray(size) if size <= PART_BYTES else None
        self._stream: _Stream | None = None
        self.sealed = False
        self.touched = False  # something of it may be in the store
        self.stamp: FileStat | None = None  # known once it is sealed

    def write(self, offset: int, data: memoryview) -> None:
        """Take all of ``data`` for ``offset``."""
        view = memoryview(data).cast("B")
        require_within(self._where, offset, len(view), announced=self._size, room=self._size, still_open=self._open)
        if self._whole is not None:
            self._whole[offset : offset + len(view)] = view
        elif len(view):
            self._begin().write(offset, view)
        with self._lock:
            self._written += len(view)

    @property
    def bytes_held(self) -> int:
        """Bytes in memory that wait to be sent."""
        if self._whole is not None:
            return self._size
        return self._stream.held if self._stream is not None else 0

    def _begin(self) -> _Stream:
        with self._lock:
            if self._stream is None:
                self.touched = True
                self._stream = _Stream(self._bucket, self.key, self._size, self._buffers)
            return self._stream

    def seal(self, size: int | None = None) -> None:
        """Finish the upload at ``size``, or at the announced size, and make sure that the object is there, whole."""
        final = sealed_size(self._where, size, announced=self._size, written=self._written, still_open=self._open)
        self._open, self._size = False, final
        try:
            self._send()
        except StorageFailure as error:
            # the last answer may be all that was lost: the key is ours alone, so what is there is ours, and whole
            if not self._is_there():
                raise
            log.warning("%s; but it is there", error)
        else:
            if not self._is_there():
                raise StorageFailure(
                    f"{self._where}: was written, but the store does not have {self._size} bytes of it. "
                    "Save again; if it comes again, do not trust this store.",
                    self._where,
                )
        self.sealed, self._whole = True, None

    def _send(self) -> None:
        self.touched = True
        if self._whole is not None:
            self._bucket.put(self.key, memoryview(self._whole)[: self._size])
        elif self._stream is not None:
            self._stream.finish(self._size)
        else:
            self._bucket.put(self.key, b"")

    def _is_there(self) -> bool:
        try:
            found = self._bucket.head(self.key)
        except KeyMissing:
            return False
        self.stamp = stamp_of(found)
        return found.size == self._size

    def give_up(self) -> None:
        """Stop an upload under way."""
        self._open = False
        if self._stream is not None and not self.sealed:
            self._stream.give_up()
