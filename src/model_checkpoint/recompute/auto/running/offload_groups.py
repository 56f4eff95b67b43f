"""Offload groups: the saved tensors of one stage call, put away from memory and brought back when backward wants them.

A group is written to its file by a worker, or by whoever needs it written and comes first; until then its bytes are
memory held. Reads are the same: begun ahead by a worker, finished by backward. Buffers are made on the asking thread,
so that a tracker counts them. A group dies with the graph that needs it, and so does its file.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model_checkpoint.errors import StorageFailure
from model_checkpoint.recompute.auto.common.errors import ValueChanged
from model_checkpoint.recompute.auto.common.statistics import RecomputeStatistics
from model_checkpoint.recompute.auto.running.saved import Saved
from model_checkpoint.recompute.errors import SpillDamaged

Errand = Callable[[], None]
Submit = Callable[[Errand], Future[None]]  # a future that can still be cancelled has not begun


def complete(future: Future[None], errand: Errand) -> None:
    """Have an errand done: here, if nobody has begun it."""
    if future.cancel():
        errand()
    else:
        future.result()


class OffloadedStorage:
    """The bytes of one storage."""

    __slots__ = ("buffer", "device", "host", "offset", "opened", "ready", "sent", "size", "source", "users", "version")

    def __init__(self, tensor: Tensor, offset: int) -> None:
        self.size, self.device, self.offset = tensor.untyped_storage().nbytes(), tensor.device, offset
        self.source: Tensor | None = tensor.detach()  # shares the version counter, so that a late change is seen
        self.version = tensor._version
        self.host: Tensor | None = None
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
    """The parcels of one stage call, in a file or (``path`` None) in host memory; ``home`` lives as long as they do."""

    def __init__(
        self, layer: str, path: Path | None, *, home: object, submit: Submit, statistics: RecomputeStatistics
    ) -> None:
        self.layer, self._path, self._home, self._submit, self._statistics = layer, path, home, submit, statistics
        self._parcels: list[OffloadedStorage] = []
        self._lock = threading.Lock()
        self._asked = self._early = False
        self.on_read: Callable[[], None] | None = None  # backward has come to this group

    @property
    def nbytes(self) -> int:
        """The size of everything put away."""
        return sum(parcel.size for parcel in self._parcels)

    # -- away ---------------------------------------------------------------------------------------------------------

    def put(self, tensor: Tensor) -> int:
        """Send the storage of a tensor away and return its number in this group."""
        parcel, number = OffloadedStorage(tensor, self.nbytes), len(self._parcels)
        self._parcels.append(parcel)
        if self._path is None:
            parcel.host = parcel.copy_to_host()
            self._statistics.dropped(self.layer, parcel.size)
            return number
        if parcel.device.type != "cpu":  # a device is read in order with its own work: here and now
            parcel.source = parcel.copy_to_host()
            parcel.version = parcel.source._version
        parcel.sent = self._submit(_sending(weakref.ref(self), parcel))  # a group whose graph is gone is not worth it
        return number

    def share(self, number: int) -> None:
        """Note that one more saved tensor lives in a storage."""
        self._parcels[number].users += 1

    def settle(self) -> None:
        """Have everything written; afterwards no bytes wait in memory.

        Raises:
            StorageFailure: the file cannot be written.
            ValueChanged: a tensor was changed in place before it was written.
        """
        for parcel in self._parcels:
            if parcel.sent is not None:
                future, parcel.sent = parcel.sent, None
                complete(future, partial(self.send, parcel))
                self._statistics.dropped(self.layer, parcel.size)

    def abandon(self) -> None:
        """Forget what waits: its graph will not be walked."""
        for parcel in self._parcels:
            if parcel.sent is not None and parcel.sent.cancel():
                parcel.source = parcel.sent = None

    def send(self, parcel: OffloadedStorage) -> None:
        """Write one parcel and let its memory go."""
        source = parcel.source
        if source is None or self._path is None:
            return
        try:
            with self._path.open("r+b", buffering=0) as file:  # never makes the file: it may be gone with the folder
                file.seek(parcel.offset)
                _write_all(file, _view(_bytes_of(source)))
        except OSError as error:
            raise StorageFailure(
                f"{self.layer}: {parcel.size} bytes cannot be written to {self._path}: {error}. "
                "Free some room, or give another spill_dir.",
                str(self._path),
                code=error.errno,
                inner_exception=error,
            ) from error
        finally:
            parcel.source = None
        if source._version != parcel.version:
            raise ValueChanged(
                f"{self.layer}: a tensor of shape {tuple(source.shape)} was changed in place after it was saved, "
                f"version {source._version}, expected {parcel.version}. Use the out-of-place operation there."
            )

    # -- back ---------------------------------------------------------------------------------------------------------

    def fetch_early(self) -> bool:
        """Begin to bring everything back before it is asked for; False if something is here already."""
        with self._lock:
            if any(parcel.buffer is not None for parcel in self._parcels):
                return False
            self._fetch(self._parcels)
            self._early = True
            return True

    def bring(self) -> None:
        """Have everything back, here and now."""
        self.fetch_early()
        for parcel in self._parcels:
            if parcel.ready is not None and parcel.buffer is not None:
                future, parcel.ready = parcel.ready, None
                complete(future, partial(self.fill, parcel, parcel.buffer))

    def read(self, number: int) -> Tensor:
        """Wait for the bytes of one storage; the last user takes them along."""
        parcel = self._parcels[number]
        begin = time.perf_counter()
        with self._lock:
            first = not self._asked
            if parcel.buffer is None:
                away = all(other.buffer is None for other in self._parcels)
                self._fetch(self._parcels if away else [parcel])
            self._asked = True
            buffer = self._take(parcel)
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
                for parcel in self._parcels:
                    parcel.release()
                self._early = False

    def fill(self, parcel: OffloadedStorage, buffer: Tensor) -> None:
        """Read one parcel into a buffer."""
        if parcel.host is not None:
            buffer.copy_(parcel.host)
            return
        assert self._path is not None
        data = buffer if buffer.device.type == "cpu" else torch.empty(parcel.size, dtype=torch.uint8)
        with self._path.open("rb", buffering=0) as file:
            file.seek(parcel.offset)
            _read_all(file, _view(data))
        if data is not buffer:
            buffer.copy_(data)

    def _fetch(self, parcels: list[OffloadedStorage]) -> None:
        self.settle()
        for parcel in parcels:
            parcel.buffer = torch.empty(parcel.size, dtype=torch.uint8, device=parcel.device)
            parcel.ready = self._submit(_filling(weakref.ref(self), parcel, parcel.buffer))

    def _take(self, parcel: OffloadedStorage) -> Tensor:
        """The filled buffer; when all users have theirs it is forgotten, so that it dies with them."""
        buffer = parcel.buffer
        assert buffer is not None
        if parcel.ready is not None:
            future, parcel.ready = parcel.ready, None
            complete(future, partial(self.fill, parcel, buffer))
        parcel.opened += 1
        if parcel.opened >= parcel.users:
            parcel.release()
            self._asked = any(other.buffer is not None for other in self._parcels)
        return buffer

    def __del__(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _sending(reference: weakref.ref[OffloadGroup], parcel: OffloadedStorage) -> Errand:
    """Write a parcel unless its graph is gone."""

    def errand() -> None:
        group = reference()
        if group is not None:
            group.send(parcel)

    return errand


def _filling(reference: weakref.ref[OffloadGroup], parcel: OffloadedStorage, buffer: Tensor) -> Errand:
    """Read a parcel unless its graph is gone."""

    def errand() -> None:
        group = reference()
        if group is not None:
            group.fill(parcel, buffer)

    return errand


def _bytes_of(tensor: Tensor) -> Tensor:
    """The whole storage of a tensor, as bytes."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _view(data: Tensor) -> memoryview:
    array: Any = data.numpy()
    return memoryview(array)


def _write_all(file: Any, view: memoryview) -> None:
    done = 0
    while done < len(view):
        done += file.write(view[done:])


def _read_all(file: Any, view: memoryview) -> None:
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])
        if not count:
            raise SpillDamaged(
                f"{file.name}: the spill file ends after {done} bytes of a tensor, expected {len(view)}. "
                "Something shortened it while training ran; take a folder of its own.",
                str(file.name),
            )
        done += count


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
