"""Offload groups: the saved tensors of one stage call, put away from memory and brought back when backward wants them.

A group is written to its file by a worker, or by whoever needs it written and comes first; until then its bytes are
memory held. Reads are the same: begun ahead by a worker, finished by backward. Buffers are made on the asking thread,
so that a tracker counts them. A group dies with the graph that needs it, and so does its file. A forked child has no
workers: it reads what is written, and never waits for what its parent's worker had begun.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import torch
from torch import Tensor

from model_checkpoint import forks
from model_checkpoint.recompute.auto.common.errors import ValueChanged
from model_checkpoint.recompute.auto.common.statistics import RecomputeStatistics
from model_checkpoint.recompute.auto.saving.saved import Saved
from model_checkpoint.recompute.common.spill_files import Extent, SpillFile

Task = Callable[[], None]
Submit = Callable[[Task], Future[None]]  # a future that can still be cancelled has not begun


class OffloadedStorage:
    """The bytes of one storage."""

    __slots__ = ("buffer", "device", "extent", "host", "opened", "ready", "sent", "size", "source", "users", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.size, self.device = tensor.untyped_storage().nbytes(), tensor.device
        self.source: Tensor | None = tensor.detach()  # shares the version counter, so that a late change is seen
        self.version = tensor._version
        self.host: Tensor | None = None
        self.extent: Extent | None = None
        self.sent: Future[None] | None = None
        self.buffer: Tensor | None = None
        self.ready: Future[None] | None = None
        self.users = self.opened = 0

    def copy_to_host(self) -> Tensor:
        """Copy the bytes to host memory and let the source go."""
        assert self.source is not None
        copied, self.source = _bytes_of(self.source).to("cpu", copy=True), None
        return copied

    def release(self) -> None:
        """Let the bytes go that were read."""
        if self.ready is not None:
            self.ready.cancel()
        self.buffer = self.ready = None
        self.opened = 0


class OffloadGroup:
    """The storages of one stage call, in a file or (``file`` None) in host memory."""

    def __init__(self, layer: str, file: SpillFile | None, *, submit: Submit, statistics: RecomputeStatistics) -> None:
        self.layer, self._file, self._submit, self._statistics = layer, file, submit, statistics
        self._owner = os.getpid()
        self._storages: list[OffloadedStorage] = []
        self._lock = forks.lock()
        self._asked = self._early = False
        self.on_read: Callable[[], None] | None = None  # backward has come to this group

    @property
    def nbytes(self) -> int:
        """The size of everything put away."""
        return sum(storage.size for storage in self._storages)

    # -- away ---------------------------------------------------------------------------------------------------------

    def put(self, tensor: Tensor) -> int:
        """Send the storage of a tensor away and return its number in this group."""
        storage, number = OffloadedStorage(tensor), len(self._storages)
        self._storages.append(storage)
        if self._file is None:
            storage.host = storage.copy_to_host()
            self._statistics.dropped(self.layer, storage.size)
            return number
        if storage.device.type != "cpu":  # a device is read in order with its own work: here and now
            storage.source = storage.copy_to_host()
            storage.version = storage.source._version
        storage.extent = self._file.reserve(storage.size)
        storage.sent = self._submit(_sending(weakref.ref(self), storage))  # a group whose graph is gone is not worth it
        return number

    def share(self, number: int) -> None:
        """Note that one more saved tensor lives in a storage."""
        self._storages[number].users += 1

    def settle(self) -> None:
        """Have everything written; afterwards no bytes wait in memory.

        Raises:
            StorageFailure: the file cannot be written.
            ValueChanged: a tensor was changed in place before it was written.
        """
        for storage in self._storages:
            if storage.sent is not None:
                future, storage.sent = storage.sent, None
                self._complete(future, partial(self.send, storage))
                self._statistics.dropped(self.layer, storage.size)

    def abandon(self) -> None:
        """Forget what waits: its graph will not be walked."""
        for storage in self._storages:
            if storage.sent is not None and storage.sent.cancel():
                storage.source = storage.sent = None

    def send(self, storage: OffloadedStorage) -> None:
        """Write one storage and let its memory go."""
        source = storage.source
        if source is None or storage.extent is None or self._file is None:
            return
        try:
            self._file.write(storage.extent, _view(_bytes_of(source)))
        finally:
            storage.source = None
        if source._version != storage.version:
            raise ValueChanged(
                f"{self.layer}: a tensor of shape {tuple(source.shape)} was changed in place after it was saved, "
                f"version {source._version}, expected {storage.version}. Use the out-of-place operation there."
            )

    # -- back ---------------------------------------------------------------------------------------------------------

    def fetch_early(self) -> bool:
        """Begin to bring everything back before it is asked for; False if something is here already."""
        with self._lock:
            if any(storage.buffer is not None for storage in self._storages):
                return False
            self._fetch(self._storages)
            self._early = True
            return True

    def bring(self) -> None:
        """Have everything back, here and now."""
        self.fetch_early()
        for storage in self._storages:
            if storage.ready is not None and storage.buffer is not None:
                future, storage.ready = storage.ready, None
                self._complete(future, partial(self.fill, storage, storage.buffer))

    def read(self, number: int) -> Tensor:
        """Wait for the bytes of one storage; the last user takes them along."""
        storage = self._storages[number]
        begin = time.perf_counter()
        with self._lock:
            first = not self._asked
            if storage.buffer is None:
                away = all(other.buffer is None for other in self._storages)
                self._fetch(self._storages if away else [storage])
            self._asked = True
            buffer = self._take(storage)
        if first and self._early:
            self._early = False
            self._statistics.prefetched(self.layer, time.perf_counter() - begin)
        if first and self.on_read is not None:
            self.on_read()
        return buffer

    def release(self) -> None:
        """Let go of what was read ahead and not asked for."""
        with self._lock:
            if not self._asked:
                for storage in self._storages:
                    storage.release()
                self._early = False

    def fill(self, storage: OffloadedStorage, buffer: Tensor) -> None:
        """Read one storage into a buffer.

        Raises:
            SpillDamaged: the file does not hold what was written.
            StorageFailure: it cannot be read.
        """
        if storage.host is not None:
            buffer.copy_(storage.host)
            return
        assert self._file is not None
        assert storage.extent is not None
        data = buffer if buffer.device.type == "cpu" else torch.empty(storage.size, dtype=torch.uint8)
        self._file.read(storage.extent, _view(data))
        if data is not buffer:
            buffer.copy_(data)

    def _fetch(self, storages: list[OffloadedStorage]) -> None:
        self.settle()
        for storage in storages:
            storage.buffer = torch.empty(storage.size, dtype=torch.uint8, device=storage.device)
            storage.ready = self._submit(_filling(weakref.ref(self), storage, storage.buffer))

    def _take(self, storage: OffloadedStorage) -> Tensor:
        """The filled buffer; when all users have theirs it is forgotten, so that it dies with them."""
        buffer = storage.buffer
        assert buffer is not None
        if storage.ready is not None:
            future, storage.ready = storage.ready, None
            try:
                self._complete(future, partial(self.fill, storage, buffer))
            except BaseException:
                storage.release()  # a buffer that was not filled must not be taken for the tensor by a second try
                raise
        storage.opened += 1
        if storage.opened >= storage.users:
            storage.release()
            self._asked = any(other.buffer is not None for other in self._storages)
        return buffer

    def _complete(self, future: Future[None], task: Task) -> None:
        """Have a task done: here, if nobody has begun it or whoever has is not in this process."""
        if future.cancel() or os.getpid() != self._owner:
            task()
        else:
            future.result()


def _sending(reference: weakref.ref[OffloadGroup], storage: OffloadedStorage) -> Task:
    """Write a storage unless its graph is gone."""

    def task() -> None:
        group = reference()
        if group is not None:
            group.send(storage)

    return task


def _filling(reference: weakref.ref[OffloadGroup], storage: OffloadedStorage, buffer: Tensor) -> Task:
    """Read a storage unless its graph is gone."""

    def task() -> None:
        group = reference()
        if group is not None:
            group.fill(storage, buffer)

    return task


def _bytes_of(tensor: Tensor) -> Tensor:
    """The whole storage of a tensor, as bytes."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _view(data: Tensor) -> memoryview:
    array: Any = data.numpy()
    return memoryview(array)


class OffloadedTensor(Saved):
    """A saved tensor whose bytes are in a group."""

    __slots__ = ("dtype", "group", "number")

    def __init__(self, tensor: Tensor, group: OffloadGroup, number: int) -> None:
        super().__init__(tensor)
        self.geometry = (tensor.size(), tensor.stride(), int(tensor.storage_offset()))
        self.dtype, self.tensor = tensor.dtype, None
        self.group, self.number = group, number
        group.share(number)

    def open(self, where: object = "saved tensor") -> Tensor:
        """Bring the tensor back."""
        assert self.geometry is not None
        storage = self.group.read(self.number).untyped_storage()
        value = torch.empty(0, dtype=self.dtype, device=storage.device)
        size, stride, offset = self.geometry
        return value.set_(storage, offset, size, stride)
