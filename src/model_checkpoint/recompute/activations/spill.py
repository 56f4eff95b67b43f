"""Spill: activations kept in files, with as much of them in memory as allowed.

The files lie in a private folder made for the store; it is gone when the store is closed or collected, or the process
ends.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any

from model_checkpoint import forks
from model_checkpoint.recompute.activations.activation import size_of
from model_checkpoint.recompute.activations.packing import Restore, pack_activation
from model_checkpoint.recompute.common.closing import Closing
from model_checkpoint.recompute.common.spill_files import SpillFile, SpillFolder
from model_checkpoint.recompute.errors import SettingInvalid


class _Spilled:
    """The buffers of one activation in a file."""

    __slots__ = ("_extents", "_restore", "file")

    def __init__(self, file: SpillFile, buffers: list[memoryview], restore: Restore) -> None:
        self.file, self._restore = file, restore
        self._extents = [file.reserve(buffer.nbytes) for buffer in buffers]
        try:
            for extent, buffer in zip(self._extents, buffers, strict=True):
                file.write(extent, buffer)
        except BaseException:
            file.remove()  # now, not when the error is forgotten: the disk may be full
            raise

    def load(self) -> Any:
        buffers = [bytearray(extent.size) for extent in self._extents]
        for extent, buffer in zip(self._extents, buffers, strict=True):
            self.file.read(extent, memoryview(buffer))
        return self._restore(iter(buffers))


class _DiskSlot:
    """An activation in memory or in a file; the lock is held only to look or to move it."""

    __slots__ = ("_activation", "_lock", "_released", "_spilled", "_store", "layer_id", "nbytes")

    def __init__(self, store: DiskStore, layer_id: str, activation: Any) -> None:
        self._store, self.layer_id = store, layer_id
        self._activation: Any = activation
        self._spilled: _Spilled | None = None
        self.nbytes = size_of(activation)
        self._lock = forks.lock()
        self._released = False

    def read(self) -> Any:
        with self._lock:
            if self._released:
                raise LookupError("the activation was released")
            if self._spilled is not None:
                return self._spilled.load()
            activation = self._activation
        self._store.touch(self)
        return activation

    def spill(self, folder: SpillFolder) -> None:
        with self._lock:
            if self._released:
                return
            buffers, restore = pack_activation(self._activation)
            self._spilled = _Spilled(folder.new_file(self.layer_id), buffers, restore)
            self._activation = None

    def release(self) -> None:
        with self._lock:
            if self._released:
                return
            self._released = True
            spilled, self._spilled, self._activation = self._spilled, None, None
        self._store.forget(self)
        if spilled is not None:
            spilled.file.remove()


class DiskStore(Closing):
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

    _called = "disk store"

    borrows = False

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, memory_bytes: int = 0) -> None:
        if memory_bytes < 0:
            raise SettingInvalid(f"disk store: memory_bytes is {memory_bytes}, expected 0 or more.")
        self._files = SpillFolder(folder)
        self.folder = self._files.path
        self._memory_bytes = memory_bytes
        self._live: set[_DiskSlot] = set()
        self._in_memory: OrderedDict[_DiskSlot, None] = OrderedDict()  # least recently used first
        self._held = self._spilled = 0
        self._lock = forks.lock()
        self._closed = False

    @property
    def spilled_bytes(self) -> int:
        """Bytes of activations in files now."""
        return self._spilled

    def put(self, layer_id: str, activation: Any) -> _DiskSlot:
        """Keep an activation; what no longer fits in memory is written out, possibly this one."""
        pack_activation(activation)  # refuse now what could not be written later
        slot = _DiskSlot(self, layer_id, activation)
        with self._lock:
            self._check_open()
            self._live.add(slot)
            self._in_memory[slot] = None
            self._held += slot.nbytes
            crowded = self._crowded_out()
        try:
            while crowded:
                crowded[-1].spill(self._files)
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
        self._files.remove()
