"""Spill: activations kept in files, with as much of them in memory as allowed.

Files lie in a private folder made for the store, named by a number, readable by this user only; each is checked
against its digest when it is read back. They are scratch: never flushed, gone when the store is closed or collected,
or the process ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

import xxhash

from model_checkpoint.errors import StorageFailure
from model_checkpoint.recompute.activations.activation import size_of
from model_checkpoint.recompute.activations.packing import Restore, pack_activation
from model_checkpoint.recompute.errors import ClosedError, SettingInvalid, SpillDamaged


class _SpillFile:
    """The buffers of one activation in one file."""

    __slots__ = ("_digest", "_restore", "_sizes", "path")

    def __init__(self, path: Path, buffers: list[memoryview], restore: Restore) -> None:
        self.path, self._restore = path, restore
        self._sizes = [buffer.nbytes for buffer in buffers]
        self._digest = _digest(buffers)
        try:
            _write(path, buffers)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise StorageFailure(
                f"{path}: the spill file could not be written: {error}. Free space there, or spill to another folder.",
                str(path),
                code=error.errno,
                inner_exception=error,
            ) from error

    def load(self) -> Any:
        buffers = [bytearray(size) for size in self._sizes]
        try:
            with open(self.path, "rb", buffering=0) as file:
                complete = all(_fill(file, memoryview(buffer)) for buffer in buffers) and not file.read(1)
        except FileNotFoundError:
            message = (
                f"{self.path}: the spill file is gone, expected {sum(self._sizes)} bytes. Compute the activation again."
            )
            raise SpillDamaged(message, str(self.path)) from None
        except OSError as error:
            raise StorageFailure(
                f"{self.path}: the spill file could not be read: {error}. Compute the activation again.",
                str(self.path),
                code=error.errno,
                inner_exception=error,
            ) from error
        found = _digest([memoryview(buffer) for buffer in buffers])
        if not complete or found != self._digest:
            raise SpillDamaged(
                f"{self.path}: the spilled activation does not read back as written: digest {found}, expected "
                f"{self._digest}. Compute the activation again.",
                str(self.path),
            )
        return self._restore(iter(buffers))


def _digest(buffers: list[memoryview]) -> str:
    state = xxhash.xxh3_128()
    for buffer in buffers:
        state.update(buffer)
    return state.hexdigest()


def _write(path: Path, buffers: list[memoryview]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with open(descriptor, "wb", buffering=0) as file:
        for buffer in buffers:
            rest = buffer.cast("B")
            while rest.nbytes:
                rest = rest[file.write(rest) or 0 :]


def _fill(file: Any, target: memoryview) -> bool:
    while target.nbytes:
        got = file.readinto(target)
        if not got:
            return False
        target = target[got:]
    return True


class _DiskSlot:
    """An activation in memory or in a file; the lock is held only to look or to move it."""

    __slots__ = ("_activation", "_file", "_lock", "_released", "_store", "nbytes")

    def __init__(self, store: DiskStore, activation: Any) -> None:
        self._store = store
        self._activation: Any = activation
        self._file: _SpillFile | None = None
        self.nbytes = size_of(activation)
        self._lock = threading.Lock()
        self._released = False

    def read(self) -> Any:
        with self._lock:
            if self._released:
                raise LookupError("the activation was released")
            if self._file is not None:
                return self._file.load()
            activation = self._activation
        self._store.touch(self)
        return activation

    def spill(self, path: Path) -> None:
        with self._lock:
            if self._released:
                return
            buffers, restore = pack_activation(self._activation)
            self._file = _SpillFile(path, buffers, restore)
            self._activation = None

    def release(self) -> None:
        with self._lock:
            if self._released:
                return
            self._released = True
            file, self._file, self._activation = self._file, None, None
        self._store.forget(self)
        if file is not None:
            file.path.unlink(missing_ok=True)


class DiskStore:
    """Keeps up to ``memory_bytes`` of activations in memory and the rest, least recently used first, in files.

    With ``memory_bytes=0`` every activation that has bytes goes to a file at once. A spilled activation reads back as
    a new object with equal content, each time from its file; torch tensors that hang on an autograd graph are refused.

    Args:
        folder: where the private folder is made; the system's temporary folder by default.
        memory_bytes: what may stay in memory.

    Example:
        >>> with DiskStore() as store:
        ...     slot = store.put("a", b"abc")
        ...     slot.read(), store.spilled_bytes
        (b'abc', 3)
    """

    borrows = False

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, memory_bytes: int = 0) -> None:
        if memory_bytes < 0:
            raise SettingInvalid(f"disk store: memory_bytes is {memory_bytes}, expected 0 or more.")
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="activations-", dir=folder))  # mode 0700
        self._memory_bytes = memory_bytes
        self._live: set[_DiskSlot] = set()
        self._in_memory: OrderedDict[_DiskSlot, None] = OrderedDict()  # least recently used first
        self._held = self._spilled = 0
        self._names = count()
        self._lock = threading.Lock()
        self._closed = False
        self._cleanup = weakref.finalize(self, _remove_folder, self.folder, os.getpid())

    @property
    def spilled_bytes(self) -> int:
        """Bytes of activations in files now."""
        return self._spilled

    def put(self, layer_id: str, activation: Any) -> _DiskSlot:
        """Keep an activation; what no longer fits in memory is written out, possibly this one."""
        pack_activation(activation)  # refuse now what could not be written later
        slot = _DiskSlot(self, activation)
        with self._lock:
            if self._closed:
                raise ClosedError("disk store: it is closed. Make a new one.")
            self._live.add(slot)
            self._in_memory[slot] = None
            self._held += slot.nbytes
            crowded = self._crowded_out()
        try:
            while crowded:
                crowded[-1].spill(self.folder / f"{next(self._names)}.bin")
                crowded.pop()
        except BaseException:
            self._take_back(crowded)
            slot.release()
            raise
        return slot

    def _crowded_out(self) -> list[_DiskSlot]:
        slots = []
        while self._held > self._memory_bytes:
            oldest, _ = self._in_memory.popitem(last=False)
            self._held -= oldest.nbytes
            self._spilled += oldest.nbytes
            slots.append(oldest)
        return slots

    def _take_back(self, slots: list[_DiskSlot]) -> None:
        """Book as in memory what could not be written: it was not lost."""
        with self._lock:
            for slot in self._live.intersection(slots):
                self._in_memory[slot] = None
                self._held += slot.nbytes
                self._spilled -= slot.nbytes

    def touch(self, slot: _DiskSlot) -> None:
        """Note that a slot in memory was read."""
        with self._lock:
            if slot in self._in_memory:
                self._in_memory.move_to_end(slot)

    def forget(self, slot: _DiskSlot) -> None:
        """Take a released slot off the books."""
        with self._lock:
            self._live.discard(slot)
            if slot in self._in_memory:
                del self._in_memory[slot]
                self._held -= slot.nbytes
            else:
                self._spilled -= slot.nbytes

    def close(self) -> None:
        """Let go of everything and delete the folder; doing it again is harmless."""
        with self._lock:
            self._closed = True
            slots = list(self._live)
        for slot in slots:
            slot.release()
        self._cleanup()

    dispose = close

    def __enter__(self) -> DiskStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _remove_folder(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not delete its parent's files
        shutil.rmtree(folder, ignore_errors=True)
